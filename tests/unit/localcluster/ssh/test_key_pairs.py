"""Keys of a run: private files are private, public halves fit."""

import stat
from pathlib import Path

import asyncssh
import pytest

from controller.localcluster.ssh.credentials import RunCredentials, generate_key_pair
from nodeagent.protocol.ids import NodeId


def test_private_keys_are_for_their_owner_and_match_the_public_ones(tmp_path: Path) -> None:
    keys = RunCredentials.generate(tmp_path, [NodeId("n1"), NodeId("n2")])
    for pair in (keys.client, *keys.hosts.values()):
        assert stat.S_IMODE(pair.private_path.stat().st_mode) == 0o600
        public = asyncssh.read_private_key(pair.private_path).export_public_key().decode()
        assert public.strip() == pair.public_line
    assert (tmp_path / "authorized_keys").read_text().strip() == keys.client.public_line
    assert len({pair.public_line.split()[1] for pair in (keys.client, *keys.hosts.values())}) == 3


def test_an_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    generate_key_pair(tmp_path / "key", "first")
    with pytest.raises(FileExistsError):
        generate_key_pair(tmp_path / "key", "second")

"""Commands to a controller on another machine, through a real SSH server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.cli import main
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.ssh.openssh import OpenSsh
from tests.fakes.directories import short_directory
from tests.fakes.served_clusters import served

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
]


@pytest.fixture
async def directory(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A home whose SSH configuration knows the machine ``ctl``, with a cluster file."""
    async with LocalCluster.start(1, 1, sshd="openssh") as cluster:
        ssh = cluster.nodes[0].address.ssh
        with short_directory() as home:
            (home / ".ssh").mkdir()
            (home / ".ssh" / "known_hosts").write_text(ssh.known_hosts_line)
            (home / ".ssh" / "config").write_text(
                f"Host ctl\n HostName {ssh.host}\n Port {ssh.port}\n User {ssh.user}\n"
                f" IdentityFile {ssh.client_key}\n"
            )
            (home / "cluster.toml").write_text('[cluster]\nname = "test"\nrun_dir = "run"\n')
            (home / "run").mkdir()
            monkeypatch.setenv("HOME", str(home))
            yield home


async def unicron(*words: str) -> int:
    return await asyncio.to_thread(main, list(words))


async def test_a_command_reaches_the_controller_through_ssh(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"ssh://ctl{directory}/cluster.toml"
    async with served(directory / "run"):
        assert await unicron("nodes", "--cluster", url) == 0
        assert "n2" in capsys.readouterr().out
        assert await unicron("propose", "--cluster", url) == 1
    assert await unicron("nodes", "--cluster", url) == 3
    told = capsys.readouterr().err
    assert f"start one there with: unicron run {directory}/cluster.toml" in told


async def test_what_is_wrong_there_is_one_line(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "broken.toml").write_text("[cluster]\nname = \n")
    for place, words in {
        f"ctl{directory}/none.toml": "No such file",
        f"ctl{directory}/broken.toml": f"ssh://ctl{directory}/broken.toml:2",
        "ctl:1/x.toml": "connection refused",
    }.items():
        assert await unicron("nodes", "--cluster", f"ssh://{place}") == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
    (directory / ".ssh" / "known_hosts").write_text("")
    monkeypatch.setenv("UNICRON_CLUSTER", f"ssh://ctl{directory}/cluster.toml")
    assert await unicron("nodes") == 2
    assert "host key" in capsys.readouterr().err

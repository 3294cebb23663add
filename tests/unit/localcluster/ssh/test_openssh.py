"""An sshd_config for one node, whatever the version, and the search for the program."""

import os
from pathlib import Path

import pytest

from controller.localcluster.cluster_errors import LocalClusterError, ServerError
from controller.localcluster.local_node import Account, LocalNode, ServerKind
from controller.localcluster.ssh.openssh import OpenSsh, render_config
from controller.localcluster.ssh.server_choice import choose_servers
from controller.localcluster.ssh.ssh_server import Credentials
from nodeagent.protocol.ids import NodeId


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    """A node as the cluster describes it."""
    return LocalNode(
        node=NodeId("n1"),
        host="127.0.0.1",
        port=22001,
        state_dir=tmp_path / "n1",
        user="ops",
        client_key_path=tmp_path / "client_key",
        host_public_key="ssh-ed25519 AAAA n1",
        server=ServerKind.OPENSSH,
        num_workers=2,
    )


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    """Its server's files, below a path with a character that sshd would expand."""
    return Credentials(
        directory=tmp_path,
        host_key_path=tmp_path / "host_key",
        authorized_keys_path=tmp_path / "100%" / "authorized_keys",
        account=Account("ops", "/home/ops", "/bin/sh"),
    )


def _program(directory: Path, script: str) -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / "sshd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_the_server_is_for_this_node_and_this_user_alone(
    node: LocalNode, credentials: Credentials, tmp_path: Path
) -> None:
    lines = render_config(node, credentials, None).splitlines()
    assert {"ListenAddress 127.0.0.1", "Port 22001", "AllowUsers ops"} <= set(lines)
    assert any(line.startswith(f'SetEnv "HOME={tmp_path}/n1" "PYTHONUSERBASE=/') for line in lines)
    assert {"PasswordAuthentication no", "UsePAM no", "PidFile none"} <= set(lines)
    assert f'AuthorizedKeysFile "{tmp_path}/100%%/authorized_keys"' in lines


def test_penalties_are_switched_off_where_they_exist_and_unknown_before(
    node: LocalNode, credentials: Credentials
) -> None:
    setting = "PerSourcePenalties no"
    for version in ((9, 8), (10, 0)):
        assert setting in render_config(node, credentials, version)
    assert setting not in render_config(node, credentials, (9, 7))
    assert setting not in render_config(node, credentials, None)


@pytest.mark.parametrize(
    "script",
    ['echo "OpenSSH_9.9p1, OpenSSL 3.0" >&2', 'echo "unknown option -- V\nOpenSSH_9.9p1"; exit 1'],
)
def test_the_version_is_read_however_it_is_printed(
    node: LocalNode, credentials: Credentials, tmp_path: Path, script: str
) -> None:
    program = _program(tmp_path / "bin", script=f'[ "$1" = -t ] && exit 0\n{script}')
    command = OpenSsh(str(program)).configure(node, credentials)
    assert command.argv[:2] == [str(program), "-D"]
    assert "PerSourcePenalties no" in (tmp_path / "sshd_config").read_text()


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="only root can make directories there")
def test_a_missing_privilege_separation_directory_is_made(
    node: LocalNode, credentials: Credentials, tmp_path: Path
) -> None:
    missing = Path(f"/run/unicron-test-{os.getpid()}")
    complaint = f"echo 'Missing privilege separation directory: {missing}' >&2; exit 255"
    program = _program(tmp_path / "bin", f"[ -d {missing} ] || {{ {complaint}; }}")
    try:
        OpenSsh(str(program)).configure(node, credentials)
        assert missing.is_dir()
    finally:
        missing.rmdir()


def test_a_refused_configuration_is_an_error_with_the_servers_words(
    node: LocalNode, credentials: Credentials, tmp_path: Path
) -> None:
    program = _program(
        tmp_path / "bin", "echo 'line 3: Bad option' >&2; echo terminating >&2; exit 255"
    )
    with pytest.raises(ServerError, match="line 3: Bad option; terminating"):
        OpenSsh(str(program)).configure(node, credentials)


def test_the_first_sshd_in_path_wins_over_the_system_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path = _program(tmp_path / "path", "exit 0")
    in_system = _program(tmp_path / "system", "exit 0")
    monkeypatch.setenv("PATH", str(in_path.parent))
    found = [OpenSsh.find([str(in_system.parent)])]
    monkeypatch.setenv("PATH", str(tmp_path))
    found += [OpenSsh.find([str(in_system.parent)]), OpenSsh.find([])]
    assert [each.program if each else None for each in found] == [
        str(in_path),
        str(in_system),
        None,
    ]


def test_a_missing_openssh_is_said_and_replaced_unless_it_was_demanded(tmp_path: Path) -> None:
    said: list[str] = []
    assert [server.kind for server in choose_servers("auto", None, said.append)] == ["asyncssh"]
    (line,) = said
    assert line.startswith("no OpenSSH server (sshd in PATH, /usr/sbin or /usr/local/sbin)")
    assert line.endswith(": using asyncssh's server instead")
    with pytest.raises(LocalClusterError, match="install openssh-server, or use --sshd asyncssh"):
        choose_servers("openssh", None, said.append)


def test_auto_falls_back_and_a_demanded_kind_does_not(tmp_path: Path) -> None:
    installed = OpenSsh(str(_program(tmp_path / "bin", "exit 0")))
    kinds = {
        choice: [server.kind.value for server in choose_servers(choice, installed, print)]
        for choice in ("auto", "openssh", "asyncssh")
    }
    assert kinds == {
        "auto": ["openssh", "asyncssh"],
        "openssh": ["openssh"],
        "asyncssh": ["asyncssh"],
    }

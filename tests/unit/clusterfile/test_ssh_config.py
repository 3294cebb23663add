"""SSH configurations are understood as OpenSSH understands them: `ssh -G` is the judge."""

import getpass
import shutil
import subprocess
from pathlib import Path

import pytest

from controller.clusterfile.cluster_keys import SshSection
from controller.clusterfile.ssh_config import SshConfig, SshConfigError
from controller.fleet.address import SshTarget

ME = getpass.getuser()
CONFIG = """\
Include extra/*.conf
Host gpu-*
    HostName %h.cluster.example
    User train
    Port 2222
    IdentityFile {folder}/key
    ProxyJump bastion
Host bastion
    HostName 192.0.2.1
    User jump
    ProxyJump outer
Host alias
    HostName 10.0.0.7
    HostKeyAlias real-name
    UserKnownHostsFile {folder}/hosts_a {folder}/hosts_b
Match originalhost special
    Port 2200
Match host 10.0.0.9
    User matched
Host by-address
    HostName 10.0.0.9
Match final host *.late
    Port 2300
Host *
    IdentityFile {folder}/other
"""
EXTRA = """\
Host outer
    HostName 198.51.100.1
    Port 22022
Host direct-*
    ProxyJump none
"""
HOSTS = [
    "gpu-1",
    "gpu-77",
    "bastion",
    "outer",
    "alias",
    "special",
    "by-address",
    "x.late",
    "unknown",
    "direct-1",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh" / "extra").mkdir(parents=True)
    (tmp_path / ".ssh" / "extra" / "a.conf").write_text(EXTRA)
    for name in ("key", "other"):
        (tmp_path / name).touch()
    (tmp_path / "config").write_text(
        CONFIG.format(folder=tmp_path).replace("Include extra", f"Include {tmp_path}/.ssh/extra")
    )
    return tmp_path


def config(folder: Path, **keys: str | int) -> SshConfig:
    return SshConfig(SshSection(**{"config": "config", **keys}), folder, {})  # type: ignore[arg-type]


def asked(folder: Path, host: str) -> dict[str, list[str]]:
    """Return what OpenSSH makes of the file."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(folder / "config"), host],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh installed")
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_reached_as_openssh_reaches_it(folder: Path, host: str) -> None:
    target, jumps = config(folder).way_to(host)
    openssh = asked(folder, host)
    assert target.host == openssh["hostname"][0]
    assert target.port == int(openssh["port"][0])
    assert target.user == openssh["user"][0]
    assert target.client_key == next(
        path for path in openssh["identityfile"] if Path(path).exists()
    )
    assert target.host_key_alias == openssh.get("hostkeyalias", [""])[0]
    if "userknownhostsfile" in openssh and host == "alias":
        assert list(target.known_hosts[:2]) == openssh["userknownhostsfile"][0].split()
    assert bool(jumps) == ("proxyjump" in openssh and openssh["proxyjump"] != ["none"])


def test_jump_hosts_are_reached_through_their_own(folder: Path) -> None:
    _, jumps = config(folder).way_to("gpu-1")
    assert [(jump.user, jump.host, jump.port) for jump in jumps] == [
        (ME, "198.51.100.1", 22022),
        ("jump", "192.0.2.1", 22),
    ]


def test_the_cluster_file_outweighs_the_configuration(folder: Path) -> None:
    keys = config(
        folder, user="op", port=7, identity="key", proxy_jump="a@h1:2201,[fd00::1]:2202, ssh://h3"
    )
    target, jumps = keys.way_to("gpu-1")
    assert (target.host, target.user, target.port) == ("gpu-1.cluster.example", "op", 7)
    assert [(jump.user, jump.host, jump.port) for jump in jumps] == [
        ("a", "h1", 2201), (ME, "fd00::1", 2202), (ME, "h3", 22),
    ]  # fmt: skip
    assert config(folder, proxy_jump="none").way_to("gpu-1")[1] == ()


def test_none_means_no_configuration(folder: Path) -> None:
    target, jumps = config(folder, config="none", identity="key").way_to("gpu-1")
    assert target == SshTarget("gpu-1", 22, ME, str(folder / "key"), "", target.known_hosts)
    assert jumps == ()


def test_the_users_own_configuration_is_the_default(folder: Path) -> None:
    (folder / ".ssh" / "config").write_text("Host n1\n  HostName 10.9.8.7\n")
    target, _ = SshConfig(SshSection(identity="key"), folder, {}).way_to("n1")
    assert target.host == "10.9.8.7"


def test_without_a_key_the_agent_is_asked_if_there_is_one(folder: Path) -> None:
    section = SshSection(config="none")
    assert SshConfig(section, folder, {"SSH_AUTH_SOCK": "/agent"}).way_to("n1")[0].client_key == ""
    with pytest.raises(SshConfigError, match="no ssh-agent runs") as refused:
        SshConfig(section, folder, {}).way_to("n1")
    assert refused.value.key == "identity"
    (folder / ".ssh" / "id_ecdsa").touch()
    assert SshConfig(section, folder, {}).way_to("n1")[0].client_key == f"{folder}/.ssh/id_ecdsa"


@pytest.mark.parametrize(
    ("text", "keys", "words"),
    [
        ("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n", {}, "lead back to each other"),
        (
            "Host a\n  ProxyCommand nc %h %p\n",
            {},
            "ProxyCommand of the SSH configuration is not supported; write ProxyJump there, or proxy_jump here",
        ),
        ("Host a\n  Port many\n", {}, "config line 2: Invalid Port integer value: many"),
        ("Host a\n  User 'x\n", {}, "config line 2: No closing quotation"),
        ("", {"proxy_jump": "a@@b"}, "'a@@b' is no jump host; write user@host:port"),
        ("", {"proxy_jump": "h,,i"}, "'' is no jump host"),
        ("", {"config": "nowhere"}, "No such file or directory"),
        ("", {"identity": "nowhere"}, "identity: there is no file"),
        ("", {"known_hosts": "nowhere"}, "known_hosts: there is no file"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    folder: Path, text: str, keys: dict[str, str], words: str
) -> None:
    (folder / "config").write_text(text)
    with pytest.raises(SshConfigError) as refused:
        config(folder, **{"identity": "key", **keys}).way_to("a")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)

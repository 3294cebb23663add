"""Training over ways in that are hard: two hops, hashed host keys, few logins at once, a banner."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.cluster_runs import controller_of, outcome_of, reach, write_cluster
from tests.fakes.demo_runs import PATIENT, demo_tasks
from tests.fakes.playgrounds import playground, unicron

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(600),
]


@pytest.mark.thorough  # parts of it: test_ways_in, test_bridge (the banner), test_first_day
def test_a_fleet_behind_two_hops_and_hardened_servers_is_checked_bootstrapped_and_trained(
    short_tmp: Path, tmp_path: Path
) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Authorised use only.\n{not json}\n")
    lines = ("MaxStartups 2:100:3", "AllowStreamLocalForwarding no", f"Banner {banner}")
    options = [word for line in lines for word in ("--sshd-config", line)]
    with playground(short_tmp, tmp_path / "play", *options) as nodes:
        path = write_cluster(nodes, tmp_path / "h", "h", demo_tasks(12, floor_s=0.1))
        for key in ("id_ed25519", "known_hosts"):
            shutil.copy(nodes.path.parent / key, path.parent / key)
        subprocess.run(
            ["ssh-keygen", "-q", "-H", "-f", str(path.parent / "known_hosts")],
            check=True, capture_output=True,
        )  # fmt: skip
        text = path.read_text().replace(str(nodes.path.parent), str(path.parent))
        head, *groups = text.split("[[nodes]]\n")
        places = [f"127.0.0.1:{port_of(group)}" for group in groups]
        groups[1] = f'proxy_jump = "{places[0]}"\n{groups[1]}'
        groups[2] = f'proxy_jump = "{places[0]},{places[3]}"\n{groups[2]}'
        head = head.replace('config = "none"', "") + PATIENT
        path.write_text("[[nodes]]\n".join([head, *groups]))
        (path.parent / "ssh_config").write_text(
            f"Host *\n  IdentityFile {path.parent / 'id_ed25519'}\n"
            f"  UserKnownHostsFile {path.parent / 'known_hosts'}\n"
        )
        path.write_text(
            path.read_text().replace("[ssh]\n", f'[ssh]\nconfig = "{path.parent / "ssh_config"}"\n')
        )
        assert "127.0.0.1" not in (path.parent / "known_hosts").read_text()
        checked = run("check", str(path))
        assert "4 nodes: 0 errors" in checked.stdout, checked.stdout + checked.stderr
        ready = run("bootstrap", str(path))
        assert ready.returncode == 0, ready.stdout + ready.stderr
        with controller_of(path, "--auto-heal", "--until-done") as command:
            reach(path, 2)
            assert command.process.wait(120) == 0
        losses = outcome_of(path)
        assert sorted(losses["gpt-a"]) == sorted(losses["gpt-b"]) == list(range(1, 13))


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(unicron(*words), capture_output=True, text=True, check=False)


def port_of(group: str) -> str:
    [line] = [line for line in group.splitlines() if line.startswith("port = ")]
    return line.removeprefix("port = ")

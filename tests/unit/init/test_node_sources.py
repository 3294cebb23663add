"""The nodes of a new file: from Ansible as ansible-inventory reads it, from SSH, from Slurm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.init import node_sources
from controller.init.node_sources import (
    FoundNode,
    SourceError,
    from_ansible,
    from_hostlist,
    from_slurm,
    from_ssh_config,
    slurm_nodes,
)
from nodeagent.rank.process.rendezvous_port import free_port
from tests.fakes.polling import wait_until

INVENTORY = """\
[gpu]
gpu-[001:003] ansible_user=train
gpu-004 ansible_host=10.0.0.4 ansible_port=2222

[gpu:vars]
ansible_ssh_common_args='-o ProxyJump=me@bastion'

[odd]
here ansible_connection=local
there ansible_host="{{ later }}"

[train:children]
gpu
"""
SLURM = """\
NodeName=gpu-001 CPUTot=64 Gres=gpu:h100:8(S:0-1) NodeAddr=gpu-001 State=IDLE Partitions=train,all
NodeName=gpu-002 CPUTot=64 Gres=gpu:h100:4,gpu:a100:2 NodeAddr=10.0.0.2 State=MIXED Partitions=train
NodeName=gpu-003 CPUTot=64 Gres=gpu:8 NodeAddr=gpu-003 State=IDLE+DRAIN Partitions=train Reason=bad link
NodeName=login CPUTot=4 Gres=(null) NodeAddr=login State=IDLE Partitions=all
"""
SLURM_CONF = """\
ClusterName=t
SlurmctldHost=localhost
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
NodeName=gpu-[001-003] NodeAddr=10.0.0.[1-3] Gres=gpu:h100:8 State=UNKNOWN
NodeName=gpu-004 NodeAddr=10.0.0.4 Gres=gpu:h100:8 State=DRAIN Reason="bad link"
PartitionName=p Nodes=ALL Default=YES State=UP
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an inventory; ansible-inventory is the one beside this interpreter."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY)
    return path


def test_hosts_of_an_ansible_group_with_its_children(inventory: Path) -> None:
    found = from_ansible(inventory, "train").nodes
    assert [node.name for node in found] == ["gpu-001", "gpu-002", "gpu-003", "gpu-004"]
    assert found[0] == FoundNode("gpu-001", user="train", proxy_jump="me@bastion")
    assert found[3] == FoundNode("gpu-004", "10.0.0.4", port=2222, proxy_jump="me@bastion")


def test_what_an_inventory_can_not_say_is_noted_or_refused(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = from_ansible(inventory, "odd")
    assert [node.name for node in found.nodes] == ["there"]
    assert found.notes == (
        "here is left out: it is not reached by SSH",
        "there: ansible_host is a template, and was left out",
    )
    with pytest.raises(SourceError, match="no host is in group no; its groups: gpu, odd, train"):
        from_ansible(inventory, "no")
    for name in ("nowhere", "a" * 300):
        with pytest.raises(SourceError, match="there is no such file"):
            from_ansible(tmp_path / name, "all")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="no command ansible-inventory: install ansible-core"):
        from_ansible(inventory, "all")


def test_hosts_of_an_ssh_configuration_and_its_includes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "config").write_text(
        "Include conf.d/*\nHost gpu-001 gpu-002 # two\n  User train\nHost=gpu-003\nHost gpu-* !x\n"
    )
    (folder / "conf.d" / "a").write_text('Host "gpu-004" bastion\nInclude conf.d/a\n')
    found = from_ssh_config("gpu-*", folder / "config")
    assert [node.name for node in found.nodes] == ["gpu-004", "gpu-001", "gpu-002", "gpu-003"]
    with pytest.raises(SourceError, match="has no Host that matches x"):
        from_ssh_config("x*", folder / "config")
    with pytest.raises(SourceError, match="can't be read"):
        from_ssh_config("x*", folder / "nowhere")


def test_nodes_that_slurm_can_use_with_their_gpus() -> None:
    found = slurm_nodes(SLURM, "")
    assert found.nodes == (FoundNode("gpu-001", gpus=8), FoundNode("gpu-002", "10.0.0.2", 6))
    assert found.notes == (
        "gpu-003 is left out: Slurm has it as IDLE+DRAIN",
        "login is left out: it has no GPU",
    )
    assert [node.name for node in slurm_nodes(SLURM, "all").nodes] == ["gpu-001"]
    with pytest.raises(SourceError, match="partition none has no node that can be used"):
        slurm_nodes(SLURM, "none")


@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="no Slurm installed")
def test_a_real_slurm_names_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "slurm.conf"
    user = Path.home().owner()
    conf.write_text(SLURM_CONF.format(port=free_port(), user=user, folder=tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(["slurmctld", "-D", "-f", str(conf)], stdout=log, stderr=log)
    try:
        ping = ["scontrol", "ping"]
        wait_until(
            lambda: b"is UP" in subprocess.run(ping, capture_output=True, check=False).stdout,
            limit_s=30,
        )
        found = from_slurm("p", {})
        assert found.nodes[0] == FoundNode("gpu-001", "10.0.0.1", 8)
        assert [node.name for node in found.nodes] == ["gpu-001", "gpu-002", "gpu-003"]
        assert "gpu-004 is left out: Slurm has it as UNKNOWN+DRAIN" in found.notes[0]
        inside = from_slurm("", {"SLURM_JOB_NODELIST": "gpu-[002-003]"})
        assert [node.name for node in inside.nodes] == ["gpu-002", "gpu-003"]
    finally:
        server.terminate()
        server.wait()
    monkeypatch.setattr(node_sources, "_LIMIT_S", 2.0)
    with pytest.raises(SourceError, match="scontrol show nodes -o: "):
        from_slurm("", {})


def test_a_wrong_hostlist_is_one_line() -> None:
    with pytest.raises(SourceError, match=r"--hosts a\[4-1\]: \[4-1\] counts down"):
        from_hostlist("a[4-1]")

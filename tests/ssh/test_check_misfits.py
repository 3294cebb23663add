"""A fleet with one misfit of each kind, each planted on a real node."""

import asyncio
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controller.demo.playground import write_cluster_file
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.ssh.openssh import OpenSsh
from tests.fakes.login_keys import locked_copy, ssh_agent
from tests.fakes.playgrounds import unicron

FAKETIME = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1")
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mount namespaces"),
    pytest.mark.skipif(not FAKETIME.exists(), reason="no faketime installed"),
]

HIDDEN = "mount -t tmpfs tmpfs"


class Machines:
    """Interpreters that run with mounts of their own, so that each node lacks something else."""

    def __init__(self, folder: Path, checkpoints: Path) -> None:
        self.folder, self.checkpoints, self.data = folder, checkpoints, folder / "sets" / "data"
        self._num_pythons = 0
        for each in (self.data, checkpoints, folder / "full"):
            each.mkdir(parents=True)
        self._write("driver/nvidia-smi", "#!/bin/sh\necho GPU 0: one\necho GPU 1: other\n")
        self._write("broken/nvidia-smi", "#!/bin/sh\necho GPU 0: one\n")
        self._write("adopt", "account required pam_slurm_adopt.so\n")
        self._write("METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.1\n")

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, planted: str = ":") -> str:
        """Return a line for an interpreter that runs after ``planted``."""
        self._num_pythons += 1
        path = self._write(
            f"python{self._num_pythons}",
            '#!/bin/sh\n[ "$INSIDE" ] || INSIDE=1 exec unshare -m --propagation private "$0" "$@"\n'
            f'PATH={self.folder}/driver:$PATH\n{planted} && exec {sys.executable} "$@"\n',
        )
        return f'python = "{path}"'

    def misfits(self) -> list[tuple[str, str, str]]:
        """Return the subject of each finding, some of its text, and the lines of its node."""
        python, here = self.python, self.folder
        installed = f"{metadata.distribution('torch').locate_file('')}/torch-*.dist-info/METADATA"
        adopts = f"{HIDDEN} /etc/pam.d && cp {here}/adopt /etc/pam.d/sshd && {HIDDEN} /var/lib"
        small = python(f"{HIDDEN} -o size=50m {here}/full")
        behind = python(f"export LD_PRELOAD={FAKETIME} FAKETIME=-300s")
        return [
            ("checkpoints", "is not the same directory", python(f"{HIDDEN} {self.checkpoints}")),
            ("interpreter", "there is no interpreter", 'python = "/nowhere/python"'),
            ("login", "the login as nobody", 'user = "nobody"'),
            ("disk", "0.1 GB are free", f'{small}\nstate_dir = "{here}/full"'),
            ("clock", " s behind the controller's", behind),
            ("gpus", "its driver shows 1 GPUs", python(f"PATH={here}/broken:$PATH")),
            ("open files", "1024 files at most", python("ulimit -n 1024")),
            ("kernel log", "can't read the kernel's log", 'kernel_log = "/nowhere/kern.log"'),
            ("login", "pam_slurm_adopt", python(adopts)),
            ("versions", "torch 2.4.1", python(f"mount --bind {here}/METADATA {installed}")),
            ("data", "there is no", python(f"{HIDDEN} {self.data.parent}")),
            ("identity", "has a passphrase", f'identity = "{here}/secret"'),
            (
                "training network",
                "is not its address; its ranks would use",
                'training_address = "203.0.113.7"',
            ),
        ]


async def test_each_misfit_is_found_on_its_node_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(tmp_path, tmp_path / "c" / "checkpoints")
    planted = machines.misfits()
    async with LocalCluster.start(len(planted) + 2, 2) as cluster:
        path = write_cluster_file(tmp_path / "c", None, cluster.nodes)
        key = path.with_name("id_ed25519")
        locked_copy(key, tmp_path / "secret")
        for node in cluster.nodes:
            node.kernel_log.touch()
        head, *groups = path.read_text().split("[[nodes]]\n")
        own = next(line for line in head.splitlines() if line.startswith("python = "))
        head = head.replace(own, machines.python())
        head = head.replace("[ssh]", f'data = "{machines.data}"\n\n[ssh]', 1)
        for number, (*_, lines) in enumerate(planted, 2):
            keys = [line.partition(" ")[0] for line in lines.splitlines()]
            old = [each for each in groups[number].splitlines() if each.split(" ")[0] not in keys]
            groups[number] = "\n".join([lines, *old, "", ""])
        groups = [group.replace("workers =", "gpus =") for group in groups]
        path.write_text("[[nodes]]\n".join([head, *groups]))
        with TemporaryDirectory() as short, ssh_agent(Path(short)) as place:
            monkeypatch.setenv("SSH_AUTH_SOCK", place)
            await run("ssh-add", "-q", str(key))
            said, code = await run(*unicron("check", str(path), "--json"))
    found = {
        (each["subject"], *each["nodes"]): each["text"] for each in json.loads(said)["findings"]
    }
    wanted = {(subject, f"n{place}"): text for place, (subject, text, _) in enumerate(planted, 3)}
    assert found.keys() == wanted.keys()
    assert [(found[key], text) for key, text in wanted.items() if text not in found[key]] == []
    assert code == 2


async def run(*words: str) -> tuple[str, int | None]:
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    return said.decode(), process.returncode

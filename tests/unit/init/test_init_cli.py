"""``unicron init``: what it writes is a cluster file, and nothing is lost."""

from pathlib import Path

import asyncssh
import pytest

from controller.cli import main
from controller.clusterfile.cluster_reader import load_cluster
from controller.init.file_text import Wishes, cluster_text
from controller.init.node_sources import FoundNode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(ssh / "id_ed25519")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    place = tmp_path / "Big Fleet"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_the_file_is_read_as_it_was_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpus", "8", "--user", "train", "--python", "/opt/py", "--checkpoint-dir", "/ckpt"]
    assert main(["init", "--hosts", "gpu-[001-016]", *words]) == 0
    said = capsys.readouterr().err
    assert "cluster.toml: 16 nodes, 128 gpus" in said
    assert "unicron check cluster.toml" in said
    cluster = load_cluster(folder / "cluster.toml")
    assert cluster.name == "big-fleet"
    assert [node.address.node for node in cluster.nodes][::15] == ["gpu-001", "gpu-016"]
    assert {(node.address.num_workers, node.has_gpus) for node in cluster.nodes} == {(8, True)}
    assert cluster.nodes[0].address.ssh.user == "train"
    assert cluster.nodes[0].address.python == "/opt/py"
    assert (str(cluster.checkpoints), cluster.tasks[0].workers) == ("/ckpt", 2)
    assert max(map(len, (folder / "cluster.toml").read_text().splitlines())) <= 110


def test_a_file_that_is_there_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "cluster.toml"
    path.write_text("mine")
    words = ["init", str(path), "--hosts", "a", "--workers", "1"]
    assert main(words) == 2
    assert "is there already: name another file, or add --force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert load_cluster(path).tasks[0].workers == 1
    assert [each.name for each in folder.iterdir()] == ["cluster.toml"], "nothing stays beside it"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hosts", "a"], "nothing says how many GPUs a has: add --gpus 8, or --workers N"),
        (["--hosts", "a!", "--gpus", "8"], "this makes no cluster file: line "),
        (["--hosts", "a", "--gpus", "8", "--name", "a b"], "this makes no cluster file: line "),
        (["nowhere/c.toml", "--hosts", "a", "--gpus", "8"], "No such file or directory"),
    ],
)
def test_what_makes_no_file_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert main(["init", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("unicron init: ")
    assert expected in said
    assert said.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_missing_key_is_said_and_the_file_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / ".ssh" / "id_ed25519").unlink()
    assert main(["init", "-", "--hosts", "n1,n2", "--workers", "2"]) == 0
    shown = capsys.readouterr()
    assert 'hosts = "n[1-2]"' in shown.out
    assert "identity: none is named" in shown.err


def test_nodes_that_differ_have_tables_of_their_own() -> None:
    nodes = [
        FoundNode("a1", gpus=8),
        FoundNode("a2", gpus=8),
        FoundNode("b1", "10.0.0.1", 4, 2222, "root", "~/k", "me@bastion"),
    ]
    text = cluster_text(nodes, Wishes("c.toml", "c"))
    assert 'hosts = "a[1-2]"' in text
    own = text[text.index('name = "b1"') :]
    for line in ('host = "10.0.0.1"', "port = 2222", 'user = "root"', 'identity = "~/k"'):
        assert line in own
    assert 'proxy_jump = "me@bastion"' in own
    assert "gpus = 4" in own

"""Which files of a folder are copied to nodes, and how a version gets there."""

import io
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controller.fleet.node_commands import archive_of
from controller.workdirs import workdir_version as versions_module
from controller.workdirs.workdir_store import WorkdirStore
from controller.workdirs.workdir_version import WorkdirError, WorkdirVersion, read_version

REPOSITORY = Path(__file__).parents[3]


def write(folder: Path, **files: str) -> Path:
    """Write files; two underscores in a name stand for a slash, one at its begin for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def paths(folder: Path) -> list[str]:
    manifest = json.loads(read_version(folder).manifest)
    return sorted(path for path, *_ in [*manifest["files"], *manifest["links"]])


def test_git_and_this_agree_on_what_is_ignored(tmp_path: Path) -> None:
    write(
        tmp_path,
        dot_gitignore="*.log\n/data/\n!keep.log\n**/cache\nbuild/*\n!build/keep\n",
        **{"train": "1", "a.log": "1", "keep.log": "1", "data__big": "1", "src__data__x": "1"},
        **{"src__cache__y": "1", "build__x": "1", "build__keep": "1", "sub__b.log": "1"},
        **{"sub__dot_gitignore": "!b.log\n*.tmp\n", "sub__c.tmp": "1", "c.tmp": "1", "ä ö": "1"},
    )
    git = ["git", "-c", "core.quotepath=off", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    assert paths(tmp_path) == sorted(listed.stdout.splitlines())


def test_a_version_is_its_paths_contents_and_modes(tmp_path: Path) -> None:
    folder = write(tmp_path, a="1", b__c="2")
    first = read_version(folder).digest
    os.utime(folder / "a", (0, 0))
    assert read_version(folder).digest == first
    (folder / "a").chmod(0o755)
    second = read_version(folder).digest
    (folder / "a").write_text("3")
    assert len({first, second, read_version(folder).digest}) == 3


def test_links_stay_inside(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", a__x="1")
    (folder / "link").symlink_to("a/x")
    assert paths(folder) == ["a/x", "link"]
    (folder / "a" / "out").symlink_to("../../secret")
    with pytest.raises(WorkdirError, match="out of the folder that is copied") as refused:
        read_version(folder)
    assert str(folder / "a" / "out") in str(refused.value)


def test_a_name_that_is_no_text_is_named_in_a_message_that_can_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_module, "MOST_BYTES", 2)
    (tmp_path / os.fsdecode(b"bad\xff\n.bin")).write_text("large")
    with pytest.raises(WorkdirError, match=r"The largest: bad\\udcff\\n\.bin") as refused:
        read_version(tmp_path)
    assert str(refused.value).encode()


def test_a_folder_too_large_names_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_module, "MOST_BYTES", 2_000_000)
    folder = write(tmp_path, small="1", weights="x" * 3_000_000)
    with pytest.raises(WorkdirError) as refused:
        read_version(folder)
    text = str(refused.value)
    assert "holds 3 MB in 2 files, and at most 2 MB are copied" in text
    assert "The largest: weights (3 MB)" in text
    assert "shared = true" in text
    (folder / ".gitignore").write_text("weights\n")
    assert paths(folder) == [".gitignore", "small"]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkdirError, match="nowhere: no such file or directory"):
        read_version(tmp_path / "nowhere")


def test_the_store_keeps_versions_and_forgets_old_ones(tmp_path: Path) -> None:
    store = WorkdirStore(tmp_path / "store")
    folder = write(tmp_path / "f", a="1", b="2")
    first = read_version(folder)
    store.keep(first)
    (folder / "a").write_text("3")
    second = read_version(folder)
    store.keep(second)
    assert len(list((tmp_path / "store" / "files").iterdir())) == 3
    store.remove_old([second.digest])
    assert store.manifest(first.digest) == first.manifest
    os.utime(tmp_path / "store" / f"{first.digest}.json", (0, 0))
    store.remove_old([second.digest])
    with pytest.raises(FileNotFoundError):
        store.manifest(first.digest)
    assert len(list((tmp_path / "store" / "files").iterdir())) == 2


# --- on the node -----------------------------------------------------------------------------


def bring(state_dir: Path, version: WorkdirVersion, store: WorkdirStore) -> tuple[list[str], str]:
    """Have the node's command take a version; return what it lacked, and its errors."""
    words = [sys.executable, "-m", "nodeagent", "workdir", "--state-dir", str(state_dir)]
    process = subprocess.Popen(
        [*words, "--digest", version.digest],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    process.stdin.write(version.manifest + b"\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    missing = json.loads(answer)["unicron_missing"] if answer else []
    data = archive_of({each: store.content(each) for each in missing}) if missing else b""
    _, said = process.communicate(data, timeout=20)
    return missing, said.decode()


def test_a_node_takes_what_it_lacks_and_keeps_versions_side_by_side(tmp_path: Path) -> None:
    store, state_dir = WorkdirStore(tmp_path / "store"), tmp_path / "state"
    folder = write(tmp_path / "f", train="1", lib__util="2", empty="")
    (folder / "train").chmod(0o755)
    (folder / "link").symlink_to("lib/util")
    first = read_version(folder)
    store.keep(first)
    missing, said = bring(state_dir, first, store)
    assert (len(missing), said) == (3, "")
    place = state_dir / "workdirs" / first.digest
    assert (place / "train").stat().st_mode & 0o777 == 0o755
    assert (place / "link").read_text() == "2"
    assert bring(state_dir, first, store) == ([], "")
    (place / "lib" / "util").write_text("the program wrote here")
    (folder / "train").write_text("new")
    second = read_version(folder)
    store.keep(second)
    missing, said = bring(state_dir, second, store)
    assert (len(missing), said) == (1, "")
    assert (state_dir / "workdirs" / second.digest / "lib" / "util").read_text() == "2"
    assert (place / "train").read_text() == "1"


def test_old_versions_go_unless_a_rank_uses_them(tmp_path: Path) -> None:
    store, state_dir = WorkdirStore(tmp_path / "store"), tmp_path / "state"
    folder = write(tmp_path / "f", train="0")
    versions = []
    for number in range(3):
        (folder / "train").write_text(str(number))
        versions.append(read_version(folder))
        store.keep(versions[-1])
        bring(state_dir, versions[-1], store)
    places = [state_dir / "workdirs" / version.digest for version in versions]
    for place in places[:2]:
        os.utime(place, (0, 0))
    (state_dir / "ranks").mkdir()
    (state_dir / "ranks" / "a.1.0.json").write_text(json.dumps({"cwd": f"{places[0]}/x"}))
    bring(state_dir, versions[2], store)
    assert [place.exists() for place in places] == [True, False, True]


def test_two_tasks_may_bring_their_folders_at_once(tmp_path: Path) -> None:
    store, state_dir = WorkdirStore(tmp_path / "store"), tmp_path / "state"
    versions = []
    for name in "abcdef":
        folder = write(tmp_path / name, **{f"f{number}": f"{name}{number}" for number in range(50)})
        versions.append(read_version(folder))
        store.keep(versions[-1])
    with ThreadPoolExecutor(len(versions)) as threads:
        outcomes = list(threads.map(lambda version: bring(state_dir, version, store), versions))
    assert [said for _, said in outcomes] == [""] * len(versions)
    assert all((state_dir / "workdirs" / version.digest / "f49").exists() for version in versions)


def test_what_is_not_announced_is_refused(tmp_path: Path) -> None:
    store, state_dir = WorkdirStore(tmp_path / "store"), tmp_path / "state"
    version = read_version(write(tmp_path / "f", train="1"))
    store.keep(version)
    other = WorkdirVersion(version.folder, b'{"files":[],"links":[]}', version.digest, {})
    assert "not the one that was announced" in bring(state_dir, other, store)[1]
    [content] = version.paths
    (tmp_path / "store" / "files" / content).write_text("spoilt")
    assert "not the one that was announced" in bring(state_dir, version, store)[1]
    assert not (state_dir / "workdirs" / version.digest).exists()


def test_an_archive_holds_what_it_was_given() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive_of({"a/b": b"1"})), mode="r:gz") as archive:
        assert archive.getnames() == ["a/b"]

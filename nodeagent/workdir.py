"""``nodeagent workdir``: take a version of a task's folder from the controller.

On standard input comes a manifest as one line. The answer is one JSON line with the contents that
are missing here, then they come as a tar archive, each named by its SHA-256. The version is built
beside the others, in ``STATE_DIR/workdirs/DIGEST``, and is never there with some files missing.
Contents are kept in ``STATE_DIR/workdirs/files``, so the next version brings only what changed.
Standard library only: it runs before anything else of the task.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Final

_OLD_S: Final = 7 * 86400.0
"""A version that no rank was started with for this long is removed."""
_MOST_LINE_BYTES: Final = 64 * 1024 * 1024


class BrokenWorkdirError(Exception):
    """The version can't be built; the text is one line."""


def workdir_of(state_dir: Path, digest: str) -> Path:
    """Return the directory of a version."""
    return state_dir / "workdirs" / digest


def take_workdir(state_dir: Path, digest: str) -> None:
    """Take a version from standard input.

    Raises:
        BrokenWorkdirError: What came is not what the digest names.
        OSError: Something can't be written.
    """
    line = sys.stdin.buffer.readline(_MOST_LINE_BYTES).rstrip(b"\n")
    if hashlib.sha256(line).hexdigest()[: len(digest)] != digest:
        raise BrokenWorkdirError("the manifest is not the one that was announced")
    manifest: dict[str, Any] = json.loads(line)
    contents = state_dir / "workdirs" / "files"
    contents.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = workdir_of(state_dir, digest)
    wanted = {content for _, content, _ in manifest["files"]}
    # In use from now on: a copy beside this one must not remove them as old.
    for path in [place, *(contents / each for each in wanted)]:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
    missing = [] if place.is_dir() else [each for each in wanted if not (contents / each).exists()]
    sys.stdout.write(f"{json.dumps({'unicron_missing': sorted(missing)})}\n")
    sys.stdout.flush()
    if missing:
        _take_contents(contents, set(missing))
    if not place.is_dir():
        _build(place, contents, manifest)
    _remove_old(state_dir)


def _take_contents(contents: Path, missing: set[str]) -> None:
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
        for entry in archive:
            data = archive.extractfile(entry)
            content = b"" if data is None else data.read()
            if entry.name not in missing or hashlib.sha256(content).hexdigest() != entry.name:
                raise BrokenWorkdirError("a content is not the one that was announced")
            new = contents / f"{entry.name}.{os.getpid()}"
            new.write_bytes(content)
            new.replace(contents / entry.name)
            missing.discard(entry.name)
    if missing:
        raise BrokenWorkdirError(f"{len(missing)} content(s) did not come")


def _build(place: Path, contents: Path, manifest: dict[str, Any]) -> None:
    copy = Path(tempfile.mkdtemp(".tmp", f"{place.name}.", place.parent))
    try:
        for path, content, is_program in manifest["files"]:
            target = copy / path
            target.parent.mkdir(parents=True, exist_ok=True)
            # Copies, not links: a program may write into its folder.
            shutil.copyfile(contents / content, target)
            target.chmod(0o755 if is_program else 0o644)
        for path, goal in manifest["links"]:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).symlink_to(goal)
        try:
            copy.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            # Another start was faster.
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _remove_old(state_dir: Path) -> None:
    """Remove versions and contents that nothing has used for long. Others may copy meanwhile."""
    folder = state_dir / "workdirs"
    records = "".join(
        path.read_text("utf-8", "replace") for path in (state_dir / "ranks").glob("*.json")
    )
    for version in folder.iterdir():
        is_used = f"/workdirs/{version.name.partition('.')[0]}" in records
        if version.name != "files" and not is_used and _is_old(version):
            shutil.rmtree(version, ignore_errors=True)
    for content in (folder / "files").iterdir():
        if _is_old(content):
            content.unlink(missing_ok=True)


def _is_old(path: Path) -> bool:
    """Return whether a path was used long ago. One that has gone meanwhile is not old."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime > _OLD_S  # noqa: TID251 - the age of a file
    return False

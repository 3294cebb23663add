"""What belongs to a folder that is copied to nodes: files that ``.gitignore`` does not exclude.

A version is named by the digest of all paths and contents. So an edited file makes another version,
and the same folder always makes the same one.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from profiles.records import on_one_line

MOST_BYTES: Final = 200_000_000
_NUM_NAMED: Final = 3
_IGNORE_FILE: Final = ".gitignore"
_NEVER: Final = frozenset({".git", "__pycache__"})
_MEGABYTE: Final = 1_000_000


class WorkdirError(Exception):
    """A folder can't be copied. The text is one line, and says what to do."""

    def __init__(self, text: str) -> None:
        """Escape what names of files may hold and messages may not."""
        super().__init__(on_one_line(text))


@dataclass(frozen=True, slots=True)
class WorkdirVersion:
    """A version of a folder.

    Attributes:
        folder: Where it was read.
        manifest: All paths with what they hold, as JSON.
        digest: Names the version.
        paths: Path below ``folder`` of each content, by its SHA-256.
    """

    folder: Path
    manifest: bytes
    digest: str
    paths: dict[str, str]


def read_version(folder: Path) -> WorkdirVersion:
    """Read a folder.

    Raises:
        WorkdirError: It is too large, a link leads out of it, or something can't be read.
    """
    try:
        return _taken(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WorkdirError(f"workdir: {error.filename or folder}: {reason}") from error


def _taken(folder: Path) -> WorkdirVersion:
    found = list(_files(folder, "", []))
    _check_size(folder, found)
    files, links, paths = [], [], {}
    for path, status in sorted(found):
        if stat.S_ISLNK(status.st_mode):
            links.append([path, _target(folder, path)])
            continue
        content = hashlib.sha256((folder / path).read_bytes()).hexdigest()
        files.append([path, content, bool(status.st_mode & stat.S_IXUSR)])
        paths[content] = path
    manifest = json.dumps({"files": files, "links": links}, separators=(",", ":")).encode()
    return WorkdirVersion(folder, manifest, hashlib.sha256(manifest).hexdigest()[:16], paths)


def _files(
    folder: Path, prefix: str, ignored: list[tuple[str, GitIgnoreSpec]]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and links with their paths below the folder where the walk began."""
    ignore_file = folder / _IGNORE_FILE
    if ignore_file.is_file():
        lines = ignore_file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        ignored = [*ignored, (prefix, GitIgnoreSpec.from_lines(lines))]
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        path = f"{prefix}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or _is_ignored(f"{path}/" if is_folder else path, ignored):
            continue
        if is_folder:
            yield from _files(Path(entry.path), f"{path}/", ignored)
        elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
            yield path, entry.stat(follow_symlinks=False)
        # Sockets and pipes belong to processes.


def _is_ignored(path: str, ignored: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """Return whether git would ignore a path. The file in the innermost folder decides."""
    for prefix, spec in reversed(ignored):
        found = spec.check_file(path[len(prefix) :]).include
        if found is not None:
            return found
    return False


def _check_size(folder: Path, found: list[tuple[str, os.stat_result]]) -> None:
    size = sum(status.st_size for _, status in found)
    if size <= MOST_BYTES:
        return
    largest = sorted(found, key=lambda each: -each[1].st_size)[:_NUM_NAMED]
    named = ", ".join(f"{path} ({status.st_size / _MEGABYTE:.0f} MB)" for path, status in largest)
    raise WorkdirError(
        f"workdir: {folder} holds {size / _MEGABYTE:.0f} MB in {len(found)} files, and at most"
        f" {MOST_BYTES // _MEGABYTE} MB are copied to nodes. The largest: {named}. Exclude them by"
        f" {_IGNORE_FILE}, or write shared = true if every node has the folder at this path"
    )


def _target(folder: Path, path: str) -> str:
    """Return where a link leads. Raises ``WorkdirError`` if that is not in the folder."""
    target = (folder / path).readlink()
    goal = os.path.normpath(folder / Path(path).parent / target)  # not through links
    if target.is_absolute() or not Path(goal).is_relative_to(folder):
        raise WorkdirError(
            f"workdir: {folder / path} leads to {target}, out of the folder that is copied: put the"
            f" file there, or exclude the link by {_IGNORE_FILE}"
        )
    return str(target)

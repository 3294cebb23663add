"""The code that is copied to nodes: the packages of the agent, and a version made of their content.

A node has a directory for each version, so an upgrade never changes files that a running agent may
still import.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

_PACKAGES = ("nodeagent", "profiles")
_SUFFIXES = (".py", ".toml", ".json")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by their path in the version's directory, and the version."""

    files: dict[str, bytes]
    version: str


def build_bundle() -> Bundle:
    """Collect the agent's packages from this installation. Equal files give equal versions."""
    files: dict[str, bytes] = {}
    for package in _PACKAGES:
        _collect(resources.files(package), package, files)
    files["__main__.py"] = files["nodeagent/__main__.py"]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.encode() + b"\0" + files[path] + b"\0")
    return Bundle(files=files, version=digest.hexdigest()[:12])


def _collect(folder: Traversable, prefix: str, files: dict[str, bytes]) -> None:
    for entry in folder.iterdir():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                _collect(entry, path, files)
        elif entry.name.endswith(_SUFFIXES):
            files[path] = entry.read_bytes()

"""Wheels of the agent's few dependencies, for nodes whose interpreter lacks them.

``fetch`` fills a cache on the controller's machine, with pip, for each version of Python and each
architecture. Nodes need no internet. The unpacked wheels go into the state directory of a node, and
come last on the path of the agent and its ranks: what the interpreter has itself comes first.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Final

from controller.bootstrap.node_facts import NodeFacts, NotReadyError

PYTHONS: Final = ("3.11", "3.12", "3.13")
MACHINES: Final = ("x86_64", "aarch64")
PACKAGE: Final = "pydantic"
"""The only package that the agent needs. pip finds what that needs in turn."""
_LIMIT_S: Final = 120.0


class FetchError(Exception):
    """Wheels can't be fetched. The text is one line."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """Unpacked wheels: files by path, and a digest of their content."""

    files: dict[str, bytes]
    digest: str


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the cache, after the XDG base directory specification."""
    given = environment.get("XDG_CACHE_HOME", "")
    home = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return home / "unicron" / "wheels"


def fetch(
    cache: Path, pythons: Sequence[str] = PYTHONS, machines: Sequence[str] = MACHINES
) -> Iterator[str]:
    """Fetch the wheels for versions of Python and architectures; yield a line about each.

    Raises:
        FetchError: pip can't download them.
    """
    wanted = f"{PACKAGE}=={version(PACKAGE)}"
    for machine in machines:
        for python in pythons:
            folder = _folder(cache, python, machine)
            folder.mkdir(parents=True, exist_ok=True)
            _download(wanted, python, machine, folder)
            num = len(list(folder.glob("*.whl")))
            yield f"{wanted} for Python {python} on {machine}: {num} wheels in {folder}"


def _download(wanted: str, python: str, machine: str, folder: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    words += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    words += ["--platform", f"manylinux2014_{machine}", "--dest", str(folder), wanted]
    try:
        done = subprocess.run(  # noqa: S603 - pip of this interpreter
            words, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"pip download {wanted}: {error}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = said[-1] if said else f"exit status {done.returncode}"
        raise FetchError(f"pip download {wanted} for Python {python} on {machine}: {reason}")


def wheels_for(facts: NodeFacts, cache: Path) -> Wheels:
    """Return the unpacked wheels for a node.

    Raises:
        NotReadyError: The cache has none for its Python and architecture.
        OSError: A file can't be read.
    """
    python = ".".join(map(str, facts.python[:2]))
    paths = sorted(_folder(cache, python, facts.machine).glob("*.whl"))
    if not any(path.name.startswith(f"{PACKAGE}-") for path in paths):
        raise NotReadyError(
            f"the interpreter has no {PACKAGE}, and there are no wheels for Python {python} on"
            f" {facts.machine}",
            "fetch them once: unicron bootstrap --fetch; or install it there with pip",
        )
    files: dict[str, bytes] = {}
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if _is_safe(name):
                    files[name] = wheel.read(name)
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name] + b"\0")
    return Wheels(files, digest.hexdigest()[:12])


def _folder(cache: Path, python: str, machine: str) -> Path:
    return cache / f"cp{python.replace('.', '')}-{machine}"


def _is_safe(name: str) -> bool:
    """Return whether a member of a wheel is a file below its directory."""
    path = PurePosixPath(name)
    return not (name.endswith("/") or path.is_absolute() or ".." in path.parts)

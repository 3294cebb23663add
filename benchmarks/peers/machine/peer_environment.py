"""The benchmark's own virtual environment, which holds everything that is compared."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

_REQUIREMENTS: Final = (
    # The whole comparison runs on one torch; the CPU build where the index offers it.
    "torch==2.13.0",
    "megatron-core==0.16.1",
    "numpy",
    "nvidia-resiliency-ext",
    "torchft-nightly",
    "matplotlib",
    # What Unicron itself needs; its sources are used where they are.
    "asyncssh>=2.21",
    "nvidia-ml-py>=12.560",
    "psutil>=6",
    "pydantic>=2.9,<3",
    "rich>=14.2",
    "textual>=8.2.8,<9",
)
_SOURCE: Final = Path(__file__).absolute().parents[3]
_VERSIONS_OF: Final = (
    "torch",
    "megatron-core",
    "nvidia-resiliency-ext",
    "torchft-nightly",
    "numpy",
    "unicron",
)
_ASK_VERSIONS: Final = """\
import json, platform, sys
from importlib.metadata import version
names = sys.argv[1:]
print(json.dumps({"python": platform.python_version()} | {name: version(name) for name in names}))
"""


def prepare(directory: Path) -> Path:
    """Make the environment, unless it is there, and return where its programs are.

    Raises:
        subprocess.CalledProcessError: A package can't be installed; pip has said why.
    """
    programs = directory.absolute() / "bin"
    stamp = directory / "recovery-benchmark.installed"
    wanted = hashlib.sha256("\n".join(_REQUIREMENTS).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return programs
    sys.stderr.write(f"installing the alternatives into {directory}; this takes minutes\n")
    python = programs / "python"
    if not python.exists():
        subprocess.run(
            [sys.executable, "-m", "venv", str(directory)], check=True, stdout=sys.stderr
        )
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *_REQUIREMENTS], check=True, stdout=sys.stderr)
    subprocess.run(
        [*install, "--no-deps", "--editable", str(_SOURCE)], check=True, stdout=sys.stderr
    )
    stamp.write_text(wanted)
    return programs


def versions(programs: Path) -> dict[str, str]:
    """Return the versions of what is compared."""
    command = [str(programs / "python"), "-c", _ASK_VERSIONS, *_VERSIONS_OF]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(answer.stdout)
    return found

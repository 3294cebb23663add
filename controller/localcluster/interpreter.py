"""How to run a module of this repository as a program, installed or from a checkout."""

import os
import sys
from pathlib import Path


def module_argv(module: str) -> list[str]:
    """Return the command that runs ``module`` with this interpreter."""
    return [sys.executable, "-m", module]


def module_environment() -> dict[str, str]:
    """Return the variables with which that command finds the packages from any directory."""
    own = str(Path(__file__).parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": own + os.pathsep + inherited if inherited else own}

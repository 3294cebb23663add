"""Imports a rank-side module into the test's own process.

Megatron warns about much while it is imported, and warnings are errors here. A test that needs the
module asks for it when it runs, so that collecting tests stays fast.
"""

import importlib
import warnings
from typing import Any


def import_quietly(name: str) -> Any:  # noqa: ANN401 - a module
    """Return the module ``name``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)

"""Importing torch, in full or without its compiler.

Megatron decorates functions with ``torch.compile`` when it is imported, and that alone loads the
compiler: over a second that each restarted process pays. Tuned settings leave it out, as Unicron
does in its template.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any


def import_torch(*, is_lean: bool) -> None:
    """Import torch and Megatron quietly; ``is_lean`` disables ``torch.compile`` meanwhile."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "error")
    torch: Any = importlib.import_module("torch")
    compile_function = torch.compile
    if is_lean:
        torch.compile = _uncompiled
    try:
        importlib.import_module("peers.training.replica")
    finally:
        torch.compile = compile_function


def _uncompiled(function: Callable[..., Any] | None = None, **_: object) -> object:
    return function if function is not None else _uncompiled

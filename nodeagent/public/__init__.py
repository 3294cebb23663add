"""All that training programs import: ``attach``, ``Loop`` and ``Context``.

    from nodeagent.public import attach         # in any Python program; needs no torch
    from nodeagent.public import Context, Loop  # in a training loop of one's own

``Loop`` and ``Context`` need torch and Megatron, which an attached program may lack. So their
module is imported when one of the two names is first used. Begin with ``monitor``.
"""

import importlib
from typing import TYPE_CHECKING, Final

from nodeagent.public.monitor import Monitor, attach

if TYPE_CHECKING:
    from nodeagent.rank.program.loop import Context, Loop

__all__ = ["Context", "Loop", "Monitor", "attach"]

_MODULE_BY_NAME: Final = dict.fromkeys(("Context", "Loop"), "nodeagent.rank.program.loop")


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)


def __dir__() -> list[str]:
    return __all__

"""How Python and its libraries work in the processes of ``unicron``.

Nearly all objects of the core and the simulator are freed by their reference counts. Python's
garbage collector looks at them all the same, after every 700 new ones: about a tenth of a
simulation's time.

numpy's linear algebra (OpenBLAS) starts a thread per core as soon as numpy is imported, and each is
busy for a while before it sleeps. Nothing here uses linear algebra.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUM_NEW: Final = 50_000
"""New objects after which the youngest are looked at; some MB."""
_PLUGINS: Final = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Leave out what only costs time while modules are imported.

    Nobody looks for garbage: almost nothing is to be freed. And pydantic, when it makes its first
    model, does not look for plugins in all packages that are installed. Later models, and other
    processes, have them as before.
    """
    wish = os.environ.get(_PLUGINS)
    was_on = gc.isenabled()
    gc.disable()
    os.environ.setdefault(_PLUGINS, "1")
    try:
        yield
    finally:
        if wish is None:
            os.environ.pop(_PLUGINS, None)
        gc.freeze()  # or the first new object would have them all looked at
        if was_on:
            gc.enable()


def collect_seldom() -> None:
    """Leave out what is loaded now, and look at new objects less often. Called after imports."""
    gc.freeze()
    gc.set_threshold(_NUM_NEW, 20, 50)


def start_no_numeric_threads() -> None:
    """Have this process and its children import numpy without more threads; a user's wish counts.

    Called before numpy is imported.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

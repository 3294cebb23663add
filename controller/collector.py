"""How often Python's garbage collector runs in the processes of ``unicron``.

Nearly all objects of the core and the simulator are freed by their reference counts. The collector
looks at them all the same, after every 700 new ones: about a tenth of a simulation's time.
"""

import gc
from typing import Final

_NUM_NEW: Final = 50_000
"""New objects after which the youngest are looked at; some MB."""


def collect_seldom() -> None:
    """Leave out what is loaded now, and look at new objects less often. Called after imports."""
    gc.freeze()
    gc.set_threshold(_NUM_NEW, 20, 50)

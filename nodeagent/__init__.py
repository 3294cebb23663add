"""What runs on a node: the agent, and in ``rank`` the processes that train.

Begin with ``agent``. Where the interpreter lacks packages, `unicron bootstrap` has put them beside
the agent's code, into ``STATE_DIR/wheels/DIGEST``. They come last on the path: what the interpreter
has itself comes first.
"""

import os
import sys


def _use_wheels() -> None:
    code, _, _ = __file__.rpartition("/nodeagent/")
    state_dir, _, version = code.rpartition("/agent/")
    if not state_dir or "/" in version:
        return  # not a copy on a node
    try:
        with open(f"{state_dir}/wheels/current", encoding="ascii") as file:  # noqa: PTH123 - 20 ms
            digest = file.read().strip()
    except (OSError, UnicodeError):
        return
    place = os.path.join(state_dir, "wheels", digest)  # noqa: PTH118 - pathlib takes 20 ms
    if digest.isalnum() and place not in sys.path:
        sys.path.append(place)


_use_wheels()

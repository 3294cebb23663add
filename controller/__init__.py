"""The controller: a pure planning core and the edges that connect it to nodes and operators.

``core`` decides and performs no I/O; ``fleet``, ``store`` and ``api`` are its edges; ``server``
composes them. ``cli`` is the command ``unicron``; each of its subcommands has a folder. Begin with
``core.machine``.
"""

import logging

# Without this, Python prints warnings on the terminal in commands that configure no logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

"""The controller: a pure planning core and the edges that connect it to nodes and operators.

``core`` decides and performs no I/O; ``fleet``, ``store`` and ``api`` are its edges; ``server`` composes
them. ``cli`` is the command ``unicron``; each of its subcommands has a folder.
"""

import logging

# A command that configures no logging prints none: Python's own fallback writes warnings to the terminal.
logging.getLogger(__name__).addHandler(logging.NullHandler())

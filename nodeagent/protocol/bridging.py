"""Where a session begins that runs over a command's standard input and output.

A login shell may print something first. ``nodeagent bridge`` writes the marker after that. Standard
library only: a bridge lives as long as its session, and stays small.
"""

from typing import Final

BRIDGE_MARKER: Final = b"\nunicron-bridge\n"

"""Entry point: ``python -m nodeagent COMMAND``, or ``python DIR COMMAND`` with a copy in DIR."""

import sys

from nodeagent.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Entry point: ``python -m nodeagent COMMAND``, and ``python DIR COMMAND`` where DIR holds a copy."""

import sys

from nodeagent.cli import main

if __name__ == "__main__":
    sys.exit(main())

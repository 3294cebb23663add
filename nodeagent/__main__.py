"""Entry point: ``python -m nodeagent COMMAND``, or ``python DIR COMMAND`` with a copy in DIR."""

import sys

from nodeagent import bridge

if __name__ == "__main__":
    if sys.argv[1:2] == ["bridge"]:
        sys.exit(bridge.main(sys.argv[2:]))
    from nodeagent.cli import main

    sys.exit(main())

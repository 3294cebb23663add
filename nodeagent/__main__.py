"""Entry point: ``python -m nodeagent COMMAND``, or ``python DIR COMMAND`` with a copy in DIR."""

import gc
import sys

from nodeagent import bridge

if __name__ == "__main__":
    if sys.argv[1:2] == ["bridge"]:
        sys.exit(bridge.main(sys.argv[2:]))
    # Looking for garbage takes an eighth of the time of the imports. ``run`` turns it on again; all
    # other commands end soon.
    gc.disable()
    from nodeagent.cli import main

    sys.exit(main())

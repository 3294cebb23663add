"""Run the examples of a page again, and write their present output into the page.

    python tools/page_examples.py docs/simulation.md

An example is a block after the line ``<!-- example -->``. It begins with ``    $ COMMAND``.

After ``<!-- example: demo -->`` a demo runs meanwhile. SOCKET in the command is then its socket.

If a command fails, the page stays as it was.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_EXAMPLE: Final = re.compile(
    r"(?P<mark><!-- example(?P<demo>: demo)? -->\n\n {4}\$ (?P<command>.+)\n)"
    r"(?P<output>(?: {4}.*\n|\n(?= {4}))*)"
)
_WIDTH: Final = 110
_LIMIT_S: Final = 120.0
_NUM_TASKS: Final = 2
"""How many tasks a demo has."""


def made_anew(page: str, environment: Mapping[str, str]) -> str:
    """Return the page with the output of each example as it is now.

    Args:
        page: The text of a page.
        environment: In which the commands run.

    Raises:
        subprocess.CalledProcessError: A command fails.
    """

    def replaced(found: re.Match[str]) -> str:
        words = shlex.split(found["command"])
        sys.stderr.write(f"{found['command']}\n")
        if found["demo"]:
            with _demo(environment) as socket:
                words = [str(socket) if word == "SOCKET" else word for word in words]
                output = _output_of(words, environment)
        else:
            output = _output_of(words, environment)
        lines = [f"    {line}".rstrip() for line in output.strip("\n").rstrip().splitlines()]
        return found["mark"] + "\n".join(lines) + "\n"

    return _EXAMPLE.sub(replaced, page)


def _output_of(words: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@contextmanager
def _demo(environment: Mapping[str, str]) -> Iterator[Path]:
    """Run a demo until the block ends; its tasks train."""
    with tempfile.TemporaryDirectory(prefix="ur-") as directory:
        socket = Path(directory) / "api.sock"
        told = Path(directory) / "told.txt"
        words = ["unicron", "demo", "--headless", "--serve", str(socket)]
        with told.open("wb") as output:
            demo = subprocess.Popen(
                words, env=environment, stdout=subprocess.DEVNULL, stderr=output
            )
        try:
            deadline = time.monotonic() + _LIMIT_S  # noqa: TID251 (a real demo)
            while told.read_text().count("trains on") < _NUM_TASKS:
                if demo.poll() is not None or time.monotonic() > deadline:  # noqa: TID251
                    raise ChildProcessError(f"the demo does not train: {told.read_text()[-500:]}")
                time.sleep(0.5)
            yield socket
        finally:
            demo.terminate()
            demo.wait()


def main() -> int:
    """Make the examples of the pages that are named anew."""
    directory = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(_WIDTH),
    }
    for name in sys.argv[1:]:
        path = Path(name)
        before = path.read_text()
        after = made_anew(before, environment)
        path.write_text(after)
        sys.stderr.write(f"{name}: {'changed' if after != before else 'as it was'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writing the post-mortem of an incident into a file: ``unicron post-mortem`` does it."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from console.viewmodel.drawing.text import clean

LIMIT_S: Final = 60.0
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


async def write_post_mortem(socket: Path, incident: str, directory: Path) -> tuple[bool, str]:
    """Write ``INCIDENT.md`` into a directory, never over a file that is there.

    The process that writes does not outlive the caller.

    Args:
        socket: The API socket of the controller, or of what plays it.
        incident: The incident. As a name from outside, it is a file's name only if it is harmless.
        directory: Where the file goes.

    Returns:
        Whether it was written, and the sentence for the operator.
    """
    if not _FILE_NAME.fullmatch(incident):
        return False, "this incident has a name that no file should have"
    path = directory / f"{incident}.md"
    if path.exists():
        return False, f"{path.name} is there already: move it away first"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "controller.cli", "post-mortem", incident),
        *("--connect", str(socket), "--output", str(path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return False, f"not written within {LIMIT_S:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = [clean(line) for line in output.decode(errors="replace").splitlines() if line.strip()]
    if process.returncode == 0:
        return True, f"written to {path}"
    return False, lines[-1] if lines else f"exit {process.returncode}"

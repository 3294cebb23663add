"""``unicron-console --plain``: what happens, as lines of text, without a picture and without keys.

For screen readers, slow links, dumb terminals and files. Verbs are typed in a shell.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from console.client.source import ControllerSource, Inbox
from console.viewmodel.console_state import Link, State
from console.viewmodel.news import plain_news
from console.viewmodel.reducer import reduce

_TICK_S: Final = 0.25


def run_plain(source: ControllerSource, clock: Callable[[], float]) -> int:
    """Print news until Ctrl-C, or until nobody reads them; return the exit code."""
    try:
        asyncio.run(_told(source, clock))
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        sys.stderr.close()  # else Python complains about standard output at exit
    return 0


async def _told(source: ControllerSource, clock: Callable[[], float]) -> None:
    inbox, state = Inbox(), State(link=Link(since=clock()))
    async with asyncio.TaskGroup() as group:
        group.create_task(source.run(inbox))
        while True:
            before = state
            for event in inbox.drain():
                state = reduce(state, event)
            for line in plain_news(before, state):
                sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            await asyncio.sleep(_TICK_S)

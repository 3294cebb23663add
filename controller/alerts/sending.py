"""Sends a message by apprise, in a process of its own.

    python -P -m controller.alerts.sending < JSON

So a service that hangs, or a library that misbehaves, costs a process that is killed, and never a
thread, the memory or the event loop of a controller. The URL travels over standard input, where no
listing of processes shows it.
"""

import asyncio
import json
import logging
import re
import sys
from typing import Any, Final
from urllib.parse import unquote

from controller.alerts.message_texts import MessageText
from profiles.records import on_one_line

_LIMIT_S: Final = 30.0
_LEAST_SECRET: Final = 4
_MOST_CHARS: Final = 200


async def send(url: str, message: MessageText, limit_s: float = _LIMIT_S) -> str:
    """Send a message; return why it could not be sent, in one line without the URL, or ""."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "controller.alerts.sending",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    asked = json.dumps({"url": url, **message._asdict()}).encode()
    try:
        async with asyncio.timeout(limit_s):
            answer, _ = await process.communicate(asked)
    except TimeoutError:
        return f"the service did not answer within {limit_s:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return str(json.loads(answer)["problem"])
    except (ValueError, KeyError, TypeError):
        return f"the process that sends ended with exit code {process.returncode}"


def why_unusable(url: str) -> str:
    """Return why apprise can't use a URL; empty if it can."""
    import apprise  # noqa: PLC0415 - nothing but this process needs it

    if apprise.Apprise.instantiate(url, suppress_exceptions=True) is None:
        scheme = url.partition("://")[0]
        return f"apprise can't use this {scheme}:// URL: see https://appriseit.com"
    return ""


def without_secrets(text: str, url: str) -> str:
    """Return a line of a log without the parts of the URL that may be secret, and without URLs."""
    line = re.sub(r"([a-z][a-z0-9+.-]*)://\S+", r"\1://...", on_one_line(text))
    parts = {part for text in (url, unquote(url)) for part in re.split(r"[/:@?&=,\s]+", text)[1:]}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _LEAST_SECRET:
            line = line.replace(part, "...")
    return line[:_MOST_CHARS]


def _send_at_once(url: str, message: MessageText) -> str:
    import apprise  # noqa: PLC0415 - the same

    if problem := why_unusable(url):
        return problem
    sender = apprise.Apprise()
    sender.add(url)
    capture: Any = apprise.LogCapture
    with capture(level=logging.WARNING, fmt="%(message)s") as log:
        is_sent = sender.notify(
            title=message.title, body=message.body, notify_type=apprise.NotifyType(message.kind),
            body_format=apprise.NotifyFormat.TEXT,
        )  # fmt: skip
        said = log.getvalue().strip().splitlines()
    if is_sent:
        return ""
    return without_secrets(said[-1], url) if said else "the service refused it"


def main() -> int:
    """Send the message of standard input, and print why it could not be sent."""
    asked = json.loads(sys.stdin.read())
    url = asked.pop("url")
    problem = _send_at_once(url, MessageText(**asked))
    sys.stdout.write(json.dumps({"problem": problem}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

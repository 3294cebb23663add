"""A real headless Chromium, and what it gets and shows: ``.ci/unpack-package`` brings it.

It is driven over its DevTools protocol. A terminal in a page is a canvas without text, so its text
is read where it arrives: the frames of the page's websocket, drawn by ``pyte``. That the page
shows it, too, is seen by the picture that the browser takes.
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
import sys
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pyte
import pytest

_LIMIT_S = 30.0
_PROGRAM = "chromium-headless-shell"


def chromium() -> tuple[str, dict[str, str]]:
    """Return Chromium's path and environment; skip the test where there is none."""
    root = Path(sys.prefix) / "chromium" / "usr" / "lib"
    unpacked = root / "chromium" / _PROGRAM
    if unpacked.exists():
        libraries = root / f"{os.uname().machine}-linux-gnu"
        return str(unpacked), {"LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pulseaudio'}"}
    found = shutil.which(_PROGRAM)
    if found is None:
        pytest.skip(f"there is no {_PROGRAM}: make test fetches it where it can")
    return found, {}


class Page:
    """The one page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.failures: list[str] = []
        """What the page could not load, and errors of its scripts."""

    async def listen(self) -> None:
        """Take in what the browser says, until it ends."""
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
                continue
            match event["method"], event["params"]:
                case "Network.webSocketFrameReceived", {
                    "response": {"opcode": 2, "payloadData": data}
                }:
                    self._stream.feed(base64.b64decode(data))
                case "Network.webSocketCreated", {"url": url}:
                    size = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
                    self.screen.resize(int(size["height"]), int(size["width"]))
                case "Network.loadingFailed", {"errorText": text}:
                    self.failures.append(text)
                case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                    self.failures.append(json.dumps(details))
                case _:
                    pass

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the browser's answer to a command of its protocol."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_LIMIT_S):
            answer = await self._answers[number]
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def open(self, url: str) -> None:
        """Open an address."""
        for domain in ("Page", "Network", "Runtime"):
            await self.ask(f"{domain}.enable")
        await self.ask("Page.navigate", url=url)

    async def type(self, keys: str) -> None:
        """Type into the page's terminal."""
        for key in keys:
            await self.ask("Input.dispatchKeyEvent", type="keyDown", text=key, key=key)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def press_control(self, letter: str) -> None:
        """Press a letter with the control key."""
        key = {"key": letter, "code": f"Key{letter.upper()}", "modifiers": 2}
        key |= {"windowsVirtualKeyCode": ord(letter.upper())}
        await self.ask("Input.dispatchKeyEvent", type="rawKeyDown", **key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **key)

    async def value(self, expression: str) -> object:
        """Return the value of an expression in the page."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        value: object = answer["result"].get("value")
        return value

    async def picture(self) -> bytes:
        """Return what the page shows, as PNG."""
        answer = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what the page or its terminal becomes."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                while not is_so():  # noqa: ASYNC110 (of another process)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"still not so: {self.failures}\n{self.text}") from None

    @property
    def text(self) -> str:
        """What the terminal in the page was sent, as lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)


@asynccontextmanager
async def browser_page(directory: Path, size: tuple[int, int] = (1280, 720)) -> AsyncIterator[Page]:
    """Run Chromium with one page for the length of the block."""
    program, environment = chromium()
    profile = directory / "chromium"
    process = await asyncio.create_subprocess_exec(
        program,
        "--no-sandbox",  # root may not have one
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        f"--window-size={size[0]},{size[1]}",
        "about:blank",
        env={**os.environ, **environment, "HOME": str(directory)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        place = profile / "DevToolsActivePort"
        async with asyncio.timeout(_LIMIT_S):
            while not place.exists() or "\n" not in place.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        port = place.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as client:
            async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                target = (await answer.json())[0]["webSocketDebuggerUrl"]
            async with (
                client.ws_connect(target, max_msg_size=0) as socket,
                asyncio.TaskGroup() as group,
            ):
                page = Page(socket)
                listening = group.create_task(page.listen())
                yield page
                listening.cancel()
    finally:
        process.kill()
        await process.wait()

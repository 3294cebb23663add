"""Serve the console, view only, to browsers on this machine.

``textual-serve`` brings the terminal of the page and the way between a page and a Textual process.
It asks nobody who they are. This server does, since every user of the machine and every page that
its operator visits can reach the port:

- It listens on the loopback address, and refuses a request for any other host name. That stops
  pages that point a name of their own at this address.
- All addresses begin with a token, which only the operator is given. It is no cookie: a browser
  sends those to all ports of a machine.
- A websocket must come from a page of this server.
- A page may load nothing from elsewhere, and no other page may frame it.

Each tab has a console process of its own, which can't change the cluster and ends with the tab. It
is started from a list of arguments, without a shell.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web
from textual_serve import app_service
from textual_serve.download_manager import DownloadManager
from typing_extensions import override

from console.client.server_child import die_with_parent
from console.viewmodel.drawing.text import clean

_LOG: Final = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8474
MAX_TABS: Final = 8
"""Each tab is a process of 60 to 100 MB."""
END_LIMIT_S: Final = 5.0
"""How long a console may take to end after its tab has gone, before it is killed."""
CLOSE_LIMIT_S: Final = 1.0
"""How long a page may take to agree that its terminal is closed."""
MAX_SIDE: Final = 1_000
"""Columns or rows that a page may ask for."""
MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""What a page may send at once; the longest are pasted texts."""
POLL_S: Final = 0.5
EXPLAINED: Final = """\
Open this address in a browser on this machine. Who has it can look, and can't change the cluster.
Ctrl-C ends it."""

_STATIC: Final = Path(app_service.__file__).parent / "static"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' {socket}; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)


class WebConsole:
    """A server of consoles.

    Args:
        argv: The console process of a tab.
        port: The port, 0 for a free one; ``DEFAULT_PORT`` if none is given.
    """

    def __init__(self, argv: Sequence[str], port: int | None) -> None:
        self._argv = argv
        self._port = DEFAULT_PORT if port is None else port
        self._token = secrets.token_urlsafe(24)
        self._runner: web.AppRunner | None = None
        self._tabs: set[web.WebSocketResponse] = set()

    @property
    def url(self) -> str:
        """The address for the operator's browser. It holds the token."""
        return f"http://{HOST}:{self._port}/{self._token}/"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The port can't be had.
        """
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/{token}/", self._page)
        app.router.add_get("/{token}/page.js", self._script)
        app.router.add_get("/{token}/ws", self._tab)
        app.router.add_static(f"/{self._token}/static", _STATIC)
        # Addresses hold the token, so none is logged.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=END_LIMIT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port)
        await site.start()
        self._port = int(self._runner.addresses[0][1])
        _LOG.info("web console listens: host=%s port=%d", HOST, self._port)

    async def stop(self) -> None:
        """Close all tabs and end their consoles."""
        for tab in tuple(self._tabs):
            if tab.prepared:
                await tab.close(code=WSCloseCode.GOING_AWAY)
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if reason := self._why_refused(request):
            _LOG.warning("web request refused: reason=%s", reason)
            return web.Response(status=403, text=f"{reason}\n", headers=_HEADERS)
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _why_refused(self, request: web.Request) -> str:
        """Return why a request is refused, or an empty string."""
        hosts = {f"{HOST}:{self._port}", f"localhost:{self._port}"}
        if request.host not in hosts:
            return "this server answers only under its own address"
        given = request.path.lstrip("/").partition("/")[0].encode(errors="replace")
        if not hmac.compare_digest(given, self._token.encode()):
            return "open the address that unicron-console --web has printed: it holds a token"
        origin = request.headers.get("Origin")
        is_own = origin == f"http://{request.host}"
        if request.path.endswith("/ws") and not is_own:
            return "a terminal may be opened only by a page of this server"
        return ""

    async def _page(self, request: web.Request) -> web.Response:
        socket = f"ws://{request.host}"
        text = Path(__file__).with_name("page.html").read_text()
        text = text.replace("SOCKET_URL", f"{socket}/{self._token}/ws")
        policy = {"Content-Security-Policy": _POLICY.format(socket=socket)}
        return web.Response(text=text, content_type="text/html", headers=policy)

    async def _script(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(Path(__file__).with_name("page.js"))

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        if len(self._tabs) >= MAX_TABS:
            return web.Response(status=503, text=f"{MAX_TABS} consoles are open: close one\n")
        socket = web.WebSocketResponse(
            heartbeat=15, timeout=CLOSE_LIMIT_S, max_msg_size=MAX_MESSAGE_BYTES
        )
        self._tabs.add(socket)
        console = _Console(self._argv, socket)
        try:
            await socket.prepare(request)
            size = (request.query.get("width"), request.query.get("height"))
            await console.start(*_size(*size))
            async with asyncio.TaskGroup() as group:
                group.create_task(console.log_errors())
                try:
                    async for message in socket:
                        if message.type is WSMsgType.TEXT:
                            await _hand_over(message.data, console, socket)
                finally:
                    await console.stop()
        finally:
            self._tabs.remove(socket)
        return socket


def serve(argv: Sequence[str], port: int | None, is_over: Callable[[], bool]) -> int:
    """Serve consoles, and print the address; return 0 after a signal, 1 once ``is_over``.

    Args:
        argv: The console process of a tab.
        port: The port, 0 for a free one; ``DEFAULT_PORT`` if none is given.
        is_over: Whether there is nothing to look at any more; asked twice a second.

    Raises:
        OSError: The port can't be had.
    """
    return asyncio.run(_serve(WebConsole(argv, port), is_over))


async def _serve(console: WebConsole, is_over: Callable[[], bool]) -> int:
    await console.start()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    sys.stdout.write(f"{console.url}\n{EXPLAINED}\n")
    sys.stdout.flush()
    try:
        while not (stopped.is_set() or is_over()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await stopped.wait()
    finally:
        await console.stop()
    return 0 if stopped.is_set() else 1


class _Console(app_service.AppService):
    """The console process of one tab."""

    def __init__(self, argv: Sequence[str], socket: web.WebSocketResponse) -> None:
        super().__init__(
            "",
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=_closing(socket),
            download_manager=DownloadManager(),
        )
        self._argv = argv
        self._errors: asyncio.StreamReader | None = None

    @override
    async def _open_app_process(
        self, width: int = 80, height: int = 24
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._build_environment(width=width, height=height),
            preexec_fn=die_with_parent,
        )
        self._process, self._stdin = process, process.stdin
        # The library prints the standard error of the process as it is: it gets an empty one.
        self._errors, process.stderr = process.stderr, asyncio.StreamReader()
        process.stderr.feed_eof()
        _LOG.info("console of a tab started: pid=%d", process.pid)
        return process

    async def log_errors(self) -> None:
        """Log what the console writes to its standard error, until it ends."""
        while self._errors is not None and (part := await self._errors.read(4096)):
            for line in part.decode(errors="replace").splitlines():
                if text := clean(line):
                    _LOG.warning("console of a tab: text=%s", text)

    @override
    async def stop(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await super().stop()
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        _LOG.info("console of a tab ended: pid=%d code=%s", process.pid, process.returncode)


def _closing(socket: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        await socket.close()

    return close


async def _hand_over(text: str, console: _Console, socket: web.WebSocketResponse) -> None:
    """Give a page's message to its console; one that can't be read is dropped."""
    try:
        match json.loads(text):
            case ["stdin", str(keys)]:
                await console.send_bytes(keys.encode(errors="replace"))
            case ["resize", {"width": width, "height": height}]:
                await console.set_terminal_size(*_size(width, height))
            case ["ping", str(moment) | int(moment)]:
                await socket.send_json(["pong", moment])
            case ["focus", *_]:
                await console.focus()
            case ["blur", *_]:
                await console.blur()
            case _:
                _LOG.warning("message of a page dropped: length=%d", len(text))
    except (RecursionError, ValueError):
        _LOG.warning("message of a page dropped: length=%d", len(text))


def _size(width: object, height: object) -> tuple[int, int]:
    """Return columns and rows as numbers a console can draw; 80 and 24 if they are none."""
    try:
        columns, rows = int(str(width)), int(str(height))
    except ValueError:
        return 80, 24
    return min(max(columns, 1), MAX_SIDE), min(max(rows, 1), MAX_SIDE)

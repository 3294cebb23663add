"""``unicron-console --web`` as a process: a real browser looks at it, and others are refused."""

import asyncio
import io
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import matplotlib.image
import numpy as np
import psutil
import pytest

from console.dialogs.frame import GUARD_S
from console.web.web_server import MAX_TABS
from tests.console.test_terminal import journal_of_a_run
from tests.fakes import cluster_views
from tests.fakes.api_server import FakeApiServer
from tests.fakes.browser import browser_page

_LIMIT_S = 30.0


class Served:
    """A running ``unicron-console --web``."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    @property
    def origin(self) -> str:
        return self.url.rsplit("/", 2)[0]

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "ws?width=100&height=30"

    def consoles(self) -> list[psutil.Process]:
        """The console processes of its tabs."""
        return psutil.Process(self.process.pid).children()


@asynccontextmanager
async def web(tmp_path: Path, *options: str) -> AsyncIterator[tuple[Served, FakeApiServer]]:
    """Serve a scripted cluster to browsers."""
    async with FakeApiServer(tmp_path / "api.sock", cluster_views.waiting()).serving() as api:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "console.cli", "--web", "--port", "0"),
            *("--connect", str(api.path), *options),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_LIMIT_S):
                url = (await process.stdout.readline()).decode().strip()
            yield Served(process, url), api
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def until_gone(processes: list[psutil.Process]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while any(_is_alive(each) for each in processes):  # noqa: ASYNC110 (other processes)
            await asyncio.sleep(0.05)


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.timeout(180)
async def test_a_browser_shows_the_console_and_its_keys_change_nothing(tmp_path: Path) -> None:
    async with web(tmp_path) as (served, api), browser_page(tmp_path) as page:
        await page.open(served.url)
        await page.until(lambda: "VIEW ONLY" in page.text and "gpt-a" in page.text)
        await page.until(lambda: "P-2 r1" in page.text)
        await page.type("?")
        await page.until(lambda: "Request a plan for the present state" in page.text)
        picture = matplotlib.image.imread(io.BytesIO(await page.picture()))
        await asyncio.sleep(GUARD_S + 0.1)  # before that a dialog takes no key
        await page.type("q")
        await page.until(lambda: "Request a plan for the present state" not in page.text)
        await page.press_control("t")
        await page.until(lambda: "this console is view only" in page.text)
        await page.type("AyXDL\r")
        await page.press_control("z")
        await page.until(lambda: "there is no shell in a browser" in page.text)
        await page.type("q")
        await page.until(lambda: served.consoles() == [])
        assert await page.value("document.body.classList.contains('-closed')") is True
        assert page.failures == []
    assert [each for each in api.received if each.kind != "read_logs"] == []
    assert picture.shape[:2] == (720, 1280)
    shades = np.unique((picture[..., 1] * 255).astype(np.uint8))
    assert len(shades) > 50, "the page shows almost nothing"


async def test_who_has_not_the_token_or_comes_from_elsewhere_is_refused(tmp_path: Path) -> None:
    async with web(tmp_path) as (served, _), aiohttp.ClientSession() as client:
        for url, headers in (
            (served.origin + "/", {}),
            (served.origin + "/ws", {"Origin": served.origin}),
            (served.origin + "/wrong/", {}),
            (served.origin + "/wrong/static/js/textual.js", {}),
            (served.url + "x/ws", {"Origin": "http://127.0.0.1:1"}),
            (served.url, {"Host": "unicron.example"}),
            (served.url, {"Host": "unicron.example:80"}),
        ):
            async with client.get(url, headers=headers) as answer:
                assert answer.status == 403, url
                assert served.url not in await answer.text()
        for origin in ({}, {"Origin": "http://unicron.example"}, {"Origin": "null"}):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await client.ws_connect(served.socket_url, headers=origin)
        async with client.get(served.url) as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["Referrer-Policy"] == "no-referrer"
        async with client.get(served.url + "static/") as answer:
            assert answer.status == 403
        assert served.consoles() == []


async def test_it_listens_on_the_loopback_address_only(tmp_path: Path) -> None:
    async with web(tmp_path) as (served, _):
        listening = psutil.Process(served.process.pid).net_connections()
        places = {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN}
        assert places == {"127.0.0.1"}


async def test_consoles_end_with_their_tab_and_their_number_has_a_limit(tmp_path: Path) -> None:
    async with web(tmp_path) as (served, _), aiohttp.ClientSession() as client:
        own = {"Origin": served.origin}
        tabs = [await client.ws_connect(served.socket_url, headers=own) for _ in range(MAX_TABS)]
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await client.ws_connect(served.socket_url, headers=own)
        first = await tabs[0].receive_bytes()
        assert b"\x1b[?1049h" in first
        for nonsense in ("", "[]", '["stdin"]', '["resize",{"width":-1e9,"height":"x"}]', "{"):
            await tabs[0].send_str(nonsense)
        consoles = served.consoles()
        assert len(consoles) == MAX_TABS
        for tab in tabs:
            await tab.close()
        await until_gone(consoles)
        async with client.ws_connect(served.socket_url, headers=own) as tab:
            assert await tab.receive_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_console_outlives_the_server(tmp_path: Path, number: int) -> None:
    async with web(tmp_path) as (served, _), aiohttp.ClientSession() as client:
        tab = await client.ws_connect(served.socket_url, headers={"Origin": served.origin})
        await tab.receive_bytes()
        consoles = served.consoles()
        assert len(consoles) == 1
        os.kill(served.process.pid, number)
        code = await served.process.wait()
        assert code == (-number if number == signal.SIGKILL else 0)
        await until_gone(consoles)
        await tab.close()


async def test_a_console_that_paints_nothing_does_not_outlive_a_killed_server(
    tmp_path: Path,
) -> None:
    journal_of_a_run(tmp_path)  # a playback that stands still
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "console.cli", "--web", "--port", "0"),
        *("--playback", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    served = Served(process, (await process.stdout.readline()).decode().strip())
    async with aiohttp.ClientSession() as client:
        tab = await client.ws_connect(served.socket_url, headers={"Origin": served.origin})
        painted = b""
        while b"PLAYBACK" not in painted:
            painted += await tab.receive_bytes()
        [console] = served.consoles()
        below = [console, *console.children(recursive=True)]
        assert len(below) == 2, "the console and its playback"
        process.kill()
        await process.wait()
        await until_gone(below)
        await tab.close()


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--web", "--plain"], "--plain prints lines and --web serves a picture: choose one"),
        (["--port", "1"], "--port belongs to --web"),
        (["--web", "--port", "70000"], "--port 70000: a port is 0 to 65535"),
    ],
)
async def test_wrong_options_are_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    async with FakeApiServer(tmp_path / "api.sock", cluster_views.calm()).serving() as api:
        errors = await refused("--connect", str(api.path), *options)
    assert errors == f"unicron-console: {words} (see unicron-console --help)\n"


async def test_a_port_that_is_taken_is_one_line_with_the_mend(tmp_path: Path) -> None:
    async with FakeApiServer(tmp_path / "api.sock", cluster_views.calm()).serving() as api:
        with taken_port() as port:
            errors = await refused("--connect", str(api.path), "--web", "--port", str(port))
    assert errors.startswith(f"unicron-console: port {port}: ")
    assert errors.endswith("choose another with --port\n")
    assert errors.count("\n") == 1


async def test_no_controller_is_said_in_the_shell(tmp_path: Path) -> None:
    errors = await refused("--connect", str(tmp_path / "none.sock"), "--web")
    assert errors == f"unicron-console: no controller socket at {tmp_path / 'none.sock'}\n"


async def refused(*options: str) -> str:
    """Return what a command that must not start prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "console.cli", *options), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    return errors.decode()

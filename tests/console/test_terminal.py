"""``unicron-console`` as a process: what it refuses, and that terminal and demo end in order.

The demo is a stand-in that serves a scripted cluster; the terminal is a pseudo-terminal.
"""

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyte
import pytest

from console.cli import LEAVE_LIMIT_S
from controller.store.journal import Journal
from controller.store.run_file import JOURNAL_NAME
from tests.fakes.polling import wait_until
from tests.fakes.recorded_worlds import eventful_world

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 20.0
_TAKES_THE_MOUSE = "\x1b[?1000h"
_ALTERNATE_SCREEN = "\x1b[?1049h"

DEMO = """
import asyncio, signal, sys, time
from pathlib import Path
from tests.fakes.api_server import play

arguments = sys.argv[1:]
print("nodes are up", file=sys.stderr, flush=True)
if "--fail" in arguments:
    print("unicron demo: --data: no such file: x.txt", file=sys.stderr)
    raise SystemExit(2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
path = Path(arguments[arguments.index("--serve") + 1])
Path(arguments[arguments.index("--pid-file") + 1]).write_text(f"{__import__('os').getpid()} {path}")
asyncio.run(play(path))
if "--linger" in arguments:
    seconds, farewell = arguments[arguments.index("--linger") + 1 :][:2]
    time.sleep(float(seconds))
    Path(farewell).touch()
"""

RUN_DEMO = """
import sys
from console.cli import _run_child
from console.configuration import read_configuration
raise SystemExit(_run_child("demo", [sys.executable, *sys.argv[1:]], read_configuration({}, {})))
"""


def _screen_after(output: str) -> pyte.Screen:
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(output)
    return screen


class Terminal:
    """A process on a pseudo-terminal of 80 by 24."""

    def __init__(self, argv: list[str]) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.output = ""
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def read_until(self, is_reached: Callable[[str], bool]) -> None:
        deadline = _now() + TIMEOUT_S
        while not is_reached(self.output):
            assert _now() < deadline, self.output[-2000:]
            self._read_some()

    def _read_some(self) -> None:
        if select.select([self._own], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):
                self.output += os.read(self._own, 65536).decode(errors="replace")

    @property
    def lines(self) -> str:
        """What stands on the screen, as one text without line breaks."""
        return "".join(_screen_after(self.output).display).strip()

    def keys(self, text: str) -> None:
        os.write(self._own, text.encode())

    def press_until(self, key: str, is_reached: Callable[[str], bool]) -> None:
        """Press ``key`` again and again: a dialog ignores keys for a moment after it opened."""
        deadline = _now() + TIMEOUT_S
        while not is_reached(self.output):
            assert _now() < deadline, self.output[-2000:]
            self.keys(key)
            self._read_some()

    def exit_code(self) -> int:
        deadline = _now() + TIMEOUT_S
        while self.process.poll() is None:
            assert _now() < deadline, self.output[-2000:]
            self._read_some()
        self._read_some()
        return self.process.returncode

    def is_restored(self) -> bool:
        """Whether line discipline, screen and cursor are as they were."""
        left_alternate = self.output.rfind("\x1b[?1049l") > self.output.rfind(_ALTERNATE_SCREEN)
        return termios.tcgetattr(self._theirs) == self.before and left_alternate

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)
        os.close(self._theirs)


def _now() -> float:
    return time.monotonic()  # noqa: TID251 (limits of a real process)


@contextmanager
def terminal(*argv: str) -> Iterator[Terminal]:
    it = Terminal([sys.executable, *argv])
    try:
        yield it
    finally:
        it.close()


def run(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("argv", [["--demo"], ["--connect", "/nowhere"]])
def test_without_a_terminal_one_line_and_exit_2(argv: list[str]) -> None:
    ended = run(*argv)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("unicron-console: stdin and stdout and stderr must be")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "--demo --cluster --connect --playback is required"),
        (["--connect", "x", "--nodes", "3"], "unknown argument: --nodes"),
        (["--demo", "--connect", "x"], "not allowed with"),
    ],
)
def test_wrong_arguments_get_one_line(argv: list[str], words: str) -> None:
    ended = run(*argv)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_headless_is_handed_to_the_demo_command() -> None:
    ended = run("--demo", "--headless", "--no-such-option")
    assert ended.returncode == 2
    assert "--no-such-option" in ended.stderr
    assert "unicron-console" not in ended.stderr


def test_help_and_version_need_no_terminal() -> None:
    assert "examples:" in run("--help").stdout
    assert run("--version").stdout.startswith("unicron-console ")


def test_a_dumb_terminal_is_refused() -> None:
    with terminal("-c", "import os; os.environ['TERM']='dumb'\n" + RUN_MAIN) as it:
        assert it.exit_code() == 2
        assert "(TERM=dumb) can't show the console" in it.output


RUN_MAIN = "from console.cli import main\nraise SystemExit(main(['--demo']))"


def test_a_missing_socket_is_one_line(tmp_path: Path) -> None:
    with terminal("-m", "console.cli", "--connect", str(tmp_path / "none.sock")) as it:
        assert it.exit_code() == 2
        assert it.output.startswith("starting the console ...\r")
        assert it.lines == f"unicron-console: no controller socket at {tmp_path / 'none.sock'}"


def test_plain_output_says_nothing_of_the_start(tmp_path: Path) -> None:
    with terminal("-m", "console.cli", "--plain", "--connect", str(tmp_path / "none.sock")) as it:
        assert it.exit_code() == 2
        assert it.output.startswith("unicron-console: no controller socket")


def test_a_cluster_without_a_controller_is_one_line_and_exit_3(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nname = "a"\nrun_dir = "run"\n')
    with terminal("-m", "console.cli", "--cluster", str(path)) as it:
        assert it.exit_code() == 3
        assert it.lines == (
            f"unicron-console: no controller runs {path} (no controller socket at"
            f" {tmp_path}/run/api.sock); start one with: unicron run {path}"
        )
    path.write_text("[cluster]\n")
    with terminal("-m", "console.cli", "--cluster", str(path)) as it:
        assert it.exit_code() == 2
        assert it.lines == f"unicron-console: {path}:1: cluster: name is missing"


@contextmanager
def demo(tmp_path: Path, *extra: str) -> Iterator[Terminal]:
    (tmp_path / "demo.py").write_text(DEMO)
    (tmp_path / "console_demo.py").write_text(RUN_DEMO)
    bootstrap = "import runpy, sys; sys.path.insert(0, '.'); sys.argv.pop(0); "
    script = bootstrap + "runpy.run_path(sys.argv[0], run_name='__main__')"
    child = ["-c", script, str(tmp_path / "demo.py")]
    own = ["-c", script, str(tmp_path / "console_demo.py")]
    with terminal(*own, *child, *extra, "--pid-file", str(tmp_path / "pid")) as it:
        yield it


def _demo_is_gone(tmp_path: Path) -> bool:
    pid, socket_path = (tmp_path / "pid").read_text().split()
    return not Path(f"/proc/{pid}").exists() and not Path(socket_path).parent.exists()


def test_quitting_ends_the_demo_and_restores_the_terminal(tmp_path: Path) -> None:
    with demo(tmp_path) as it:
        it.read_until(lambda output: "gpt-a" in output)
        assert _TAKES_THE_MOUSE in it.output
        it.keys("q")
        it.read_until(lambda output: "Quit ends the demo" in output)
        it.press_until("y", lambda output: "▸[ Quit ]" in output)
        it.keys("\r")
        assert it.exit_code() == 0
        assert "the demo ended after" in it.output
        assert it.is_restored()
    assert _demo_is_gone(tmp_path)


def test_a_line_shows_the_start_and_is_gone_before_the_first_frame(tmp_path: Path) -> None:
    with demo(tmp_path) as it:
        it.read_until(lambda output: "gpt-a" in output)
        before, found, _ = it.output.partition(_ALTERNATE_SCREEN)
    assert found
    assert before.startswith("starting the console ...\r")
    screen = _screen_after(before)
    assert "".join(screen.display).isspace()
    assert (screen.cursor.x, screen.cursor.y) == (0, 0)


def journal_of_a_run(directory: Path) -> None:
    """Write the journal of an eventful run."""
    journal = Journal(directory / JOURNAL_NAME)
    for event in eventful_world().events:
        journal.append(event)
    journal.close()


def _is_served(directory: Path) -> bool:
    """Whether a process still plays the journal of a directory back."""
    words = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any("playback" in each and str(directory) in each for each in words)


def test_a_playback_begins_at_its_moment_and_leaves_no_process(tmp_path: Path) -> None:
    journal_of_a_run(tmp_path)
    playback = ("-m", "console.cli", "--playback", str(tmp_path), "--at", "I-2")
    with terminal(*playback) as it:
        it.read_until(lambda output: "after I-2" in output and "PLAYBACK" in output)
        assert _is_served(tmp_path)
        it.keys("q")
        assert it.exit_code() == 0
        assert it.is_restored()
    wait_until(lambda: not _is_served(tmp_path), limit_s=TIMEOUT_S)
    with terminal(*playback) as it:
        it.read_until(lambda output: "PLAYBACK" in output)
        it.process.kill()
        it.exit_code()
    wait_until(lambda: not _is_served(tmp_path), limit_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("at", "words"), [("I-999", "there is no incident I-999"), ("noon", "'noon' is no moment")]
)
def test_a_playback_that_can_t_begin_says_why(tmp_path: Path, at: str, words: str) -> None:
    journal_of_a_run(tmp_path)
    with terminal("-m", "console.cli", "--playback", str(tmp_path), "--at", at) as it:
        assert it.exit_code() == 1
        assert words in it.output
        assert "Traceback" not in it.output


@pytest.mark.skipif(shutil.which("setsid") is None, reason="no setsid is installed")
def test_ctrl_z_gives_the_terminal_back_and_fg_returns(tmp_path: Path) -> None:
    socket = tmp_path / "api.sock"
    server = subprocess.Popen([sys.executable, "-m", "tests.fakes.api_server", socket], cwd=ROOT)
    it = Terminal(["env", "PS1=ready> ", "setsid", "--ctty", "--wait", "bash", "--norc", "-i"])
    try:
        wait_until(socket.exists, limit_s=TIMEOUT_S)
        it.keys(f"{sys.executable} -m console.cli --connect {socket} --no-mouse\n")
        for _ in range(2):
            it.output = ""
            it.read_until(lambda output: "gpt-a" in output)
            assert _TAKES_THE_MOUSE not in it.output
            it.output = ""
            it.keys("\x1a")
            it.read_until(lambda output: "\x1b[?1049l" in output and "Stopped" in output)
            it.keys("echo $((40 + 2)); fg\n")
            it.read_until(lambda output: "42\r\n" in output)
        it.output = ""
        it.read_until(lambda output: "gpt-a" in output)
        it.keys("q")
        it.read_until(lambda output: "\x1b[?1049l" in output and output.endswith("ready> "))
        it.keys("exit\n")
        assert it.exit_code() == 0
    finally:
        it.close()
        server.kill()
        server.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_demo_and_restores_the_terminal(tmp_path: Path, number: int) -> None:
    with demo(tmp_path) as it:
        it.read_until(lambda output: "gpt-a" in output)
        it.process.send_signal(number)
        assert it.exit_code() == 128 + number
        assert it.is_restored()
    assert _demo_is_gone(tmp_path)


def test_a_demo_that_takes_its_time_to_end_is_waited_for_after_a_signal(tmp_path: Path) -> None:
    farewell = tmp_path / "farewell"
    with demo(tmp_path, "--linger", str(LEAVE_LIMIT_S + 1.5), str(farewell)) as it:
        it.read_until(lambda output: "gpt-a" in output)
        it.process.send_signal(signal.SIGTERM)
        assert it.exit_code() == 128 + signal.SIGTERM
        assert "the demo ended after" in it.output
        assert it.is_restored()
    assert farewell.exists()
    assert _demo_is_gone(tmp_path)


def test_a_killed_console_takes_the_demo_along(tmp_path: Path) -> None:
    with demo(tmp_path) as it:
        it.read_until(lambda output: "gpt-a" in output)
        it.process.kill()
        it.exit_code()
    pid = (tmp_path / "pid").read_text().split()[0]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), limit_s=TIMEOUT_S)
    directory = Path((tmp_path / "pid").read_text().split()[1]).parent
    for left in directory.iterdir():
        left.unlink()
    directory.rmdir()


def test_a_demo_that_does_not_start_is_one_error(tmp_path: Path) -> None:
    with demo(tmp_path, "--fail") as it:
        assert it.exit_code() == 1
        assert it.is_restored()
        last = it.output.rstrip().splitlines()[-1]
        assert last.endswith("unicron demo: --data: no such file: x.txt")
    assert not (tmp_path / "pid").exists()

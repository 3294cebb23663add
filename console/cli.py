"""``unicron-console``: attach to a controller, or start a demo cluster and attach to it.

Wrong arguments and a missing terminal are refused here in one line, before anything is started.
Textual is imported last, so that ``--help`` and errors are fast.
"""

import argparse
import asyncio
import gc
import getpass
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn

from controller.logs.log_options import (
    LogOptionError,
    LogOptions,
    add_logging_arguments,
    log_arguments,
    log_options,
    logging_to,
)
from controller.python_settings import quick_imports
from controller.version_option import VersionOption

if TYPE_CHECKING:
    from console.client.server_child import ServerChild
    from console.client.source import ControllerSource
    from console.configuration import ConsoleConfiguration

_LOG: Final = logging.getLogger(__name__)

EXIT_USAGE: Final = 2
LEAVE_LIMIT_S: Final = 5.0
"""How long the app may take to leave after a signal, before the process exits without it."""

DESCRIPTION: Final = """\
The operations console of Unicron: watch the cluster, approve or reject plans, run drills.
A console that attaches to a controller starts in view mode: no key changes the cluster until
ctrl+t allows actions. A console that starts a demo allows actions at once. "?" shows all keys."""

EXAMPLES: Final = """\
examples:
  unicron-console --demo                      start a demo cluster on this machine; it ends on quit
  unicron-console --demo --nodes 6 --seed 3   the same with arguments of "unicron demo"
  unicron-console --cluster cluster.toml      attach to the controller of "unicron run cluster.toml"
  unicron-console --connect /run/unicron.sock attach to a controller at this API socket
  unicron-console --cluster cluster.toml --plain  print what happens as lines, for a screen reader
  unicron-console --cluster cluster.toml --web    serve it, view only, to a browser on this machine
  unicron-console --playback cluster.toml --at I-3  look at the third incident of this cluster
  unicron-console config show --origin        the settings, and where each comes from
  unicron-console --demo --headless --json    no console: run "unicron demo" with these arguments

All arguments after --demo that the console does not know go to "unicron demo"
(see "unicron demo --help")."""


CONFIG: Final = """\
The console's settings, from options, the environment (UNICRON_CONSOLE_THEME, UNICRON_CONSOLE_ASCII,
UNICRON_CONSOLE_KEYMAP, UNICRON_CONSOLE_ATTENTION) and the file console.toml in $XDG_CONFIG_HOME/unicron. The first that has a
value wins. The file may also have keys for commands:

  theme = "light"
  keymap = "vim"
  [keys]
  "panel.filter" = "f"
  "node.drain" = "V"
"""


class _Limits(NamedTuple):
    """What a console may not do."""

    is_view_only: bool = False
    is_in_browser: bool = False


_UNLIMITED: Final = _Limits()


class _Parser(argparse.ArgumentParser):
    """Prints one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        _refuse(f"{message} (see unicron-console --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["config"]:
        return _run_config(words[1:])
    arguments, extra = _parse(words)
    log = log_options(arguments)
    demo_argv = [sys.executable, "-P", "-m", "controller.cli", "demo", *extra, *log_arguments(log)]
    if arguments.demo and "--headless" in extra:
        os.execv(sys.executable, demo_argv)  # noqa: S606 (our own interpreter)
    problem = terminal_problem(os.environ.get("TERM", ""), _streams())
    is_app = not (arguments.plain or arguments.web or arguments.in_browser)
    if problem and is_app:
        _refuse(problem)
    if (problem := log_problem(log)) and not arguments.web:
        _refuse(problem)
    configuration = _configuration(arguments, is_app=is_app)
    try:
        # Never on the terminal if the console draws on it.
        with logging_to(log, owns_terminal=arguments.web):
            return _show(arguments, demo_argv, configuration)
    except LogOptionError as error:
        _refuse(str(error))


def _show(
    arguments: argparse.Namespace, demo_argv: Sequence[str], configuration: "ConsoleConfiguration"
) -> int:
    if arguments.web:
        return _serve_web(arguments, demo_argv)
    limits = _Limits(arguments.view_only or arguments.in_browser, arguments.in_browser)
    if arguments.demo:
        _LOG.info("console starts a demo: pid=%d", os.getpid())
        return _run_child("demo", demo_argv, configuration, limits)
    if arguments.playback is not None:
        _LOG.info("console plays back: pid=%d path=%s", os.getpid(), arguments.playback)
        return _run_child("playback", _playback_argv(arguments), configuration, limits)
    path = _socket_of(arguments)
    # A browser has no shell to read this in: there, the console tries again and says why.
    if not arguments.in_browser and (problem := connect_problem(path)):
        _refuse_without_controller(arguments, problem)
    _LOG.info("console attaches: pid=%d socket=%s", os.getpid(), path)
    return _tell(path) if arguments.plain else _attach(path, configuration, limits)


def terminal_problem(term: str, is_tty_by_name: dict[str, bool]) -> str:
    """Return why no console can be shown, or an empty string."""
    missing = [name for name, is_tty in is_tty_by_name.items() if not is_tty]
    if missing:
        return f"{' and '.join(missing)} must be a terminal; without one, use --plain, or --demo --headless"
    if term in ("", "dumb", "unknown"):
        return f"the terminal (TERM={term or 'unset'}) can't show the console; use --plain, or --demo --headless"
    return ""


def log_problem(log: LogOptions) -> str:
    """Return why the console can't log as asked, or an empty string."""
    if log.file is None and (log.level or log.format != "text"):
        return "the console draws on the terminal and logs only to a file: add --log-file"
    return ""


def connect_problem(path: Path) -> str:
    """Return why nobody answers at ``path`` now, or an empty string.

    Later failures are retried; this first one is most likely a mistyped path.
    """
    with quick_imports():
        from console.client.controller_link import connect_failure  # noqa: PLC0415 (pydantic is slow to import)

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(str(path))
        except OSError as error:
            return connect_failure(path, error)
    return ""


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = _Parser(
        prog="unicron-console",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--demo", action="store_true", help="start a demo cluster, and end it with the console"
    )
    what.add_argument(
        "--cluster",
        metavar="FILE",
        help="attach to the controller that runs this cluster file, also as ssh://HOST/FILE",
    )
    what.add_argument("--connect", metavar="SOCKET", help="attach to a controller's API socket")
    what.add_argument(
        "--playback",
        metavar="PATH",
        help="play back a recording, or the journal of a run: its directory or its cluster file",
    )
    parser.add_argument(
        "--at", metavar="MOMENT",
        help="begin a playback at an incident (I-3) or a time in UTC (14:02:30; default: its end)",
    )  # fmt: skip
    parser.add_argument(
        "--last", metavar="TIME", help="how much of a journal a playback reads (default: 12h)"
    )
    parser.add_argument(
        "--plain", action="store_true",
        help="no picture and no keys: print what happens as lines, with the commands to type; needs no terminal",
    )  # fmt: skip
    parser.add_argument(
        "--view-only", action="store_true",
        help="a console that can never change the cluster; ctrl+t is refused",
    )  # fmt: skip
    parser.add_argument(
        "--web", action="store_true",
        help="serve the console, view only, to a browser on this machine, under an address that is printed",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=int, metavar="PORT", help="the port of --web (default: 8474; 0: a free one)"
    )
    parser.add_argument("--in-browser", action="store_true", help=argparse.SUPPRESS)
    _add_appearance(parser)
    add_logging_arguments(parser, owns_terminal=False)
    parser.add_argument("--version", action=VersionOption, help="print the version")
    arguments, extra = parser.parse_known_args(argv)
    if extra[:1] == ["--"]:
        extra = extra[1:]
    for option in ("at", "last"):
        if getattr(arguments, option) is not None and arguments.playback is None:
            parser.error(f"--{option} belongs to --playback")
    if arguments.port is not None and not arguments.web:
        parser.error("--port belongs to --web")
    if arguments.port is not None and not 0 <= arguments.port <= 65535:
        parser.error(f"--port {arguments.port}: a port is 0 to 65535")
    if arguments.plain and arguments.web:
        parser.error("--plain prints lines and --web serves a picture: choose one")
    if arguments.plain and (arguments.demo or arguments.playback is not None):
        parser.error("--plain needs --cluster or --connect; a demo prints lines with --headless")
    if extra and not arguments.demo:
        parser.error(f"unknown argument: {extra[0]}")
    return arguments, extra


def _add_appearance(parser: argparse.ArgumentParser) -> None:
    """Define the options that the user's file and the environment can have, too."""
    parser.add_argument(
        "--ascii", action="store_true", default=None, help="draw with ASCII signs only"
    )
    parser.add_argument(
        "--theme", metavar="NAME",
        help="dark, light, contrast, deuteranopia or tritanopia (see unicron-console config)",
    )  # fmt: skip
    parser.add_argument("--keymap", metavar="NAME", help="default or vim")
    parser.add_argument(
        "--attention", metavar="HOW",
        help="call for attention when something needs you: bell, osc9, osc777 or none (default)",
    )  # fmt: skip
    parser.add_argument(
        "--mouse", action=argparse.BooleanOptionalAction, default=None,
        help="take clicks and the wheel (default); without, the terminal selects text as usual",
    )  # fmt: skip


def _configuration(
    arguments: argparse.Namespace, *, is_app: bool = False
) -> "ConsoleConfiguration":
    with quick_imports(), _starting_line(is_shown=is_app):
        from console.configuration import (  # noqa: PLC0415 (pydantic is slow to import)
            ConsoleSettingError,
            read_configuration,
        )

    names = ("theme", "ascii", "keymap", "attention", "mouse")
    given = {name: getattr(arguments, name) for name in names}
    try:
        return read_configuration(
            {name: value for name, value in given.items() if value is not None}
        )
    except ConsoleSettingError as error:
        # A line for each mistake: editors jump to file and line.
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_USAGE) from error


def _run_config(argv: Sequence[str]) -> int:
    """Print the console's settings."""
    parser = _Parser(
        prog="unicron-console config", description=CONFIG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "what", choices=("show", "keys"), help="print the settings, or the keys of each command"
    )
    parser.add_argument("--origin", action="store_true", help="say where each value comes from")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_appearance(parser)
    arguments = parser.parse_args(argv)
    from profiles.records import is_there  # noqa: PLC0415 (imports pydantic)

    found = _configuration(arguments)
    if arguments.what == "keys":
        return _print_keys(found, is_json=arguments.json)
    if arguments.json:
        settings = {each.name: each._asdict() for each in found.origins}
        sys.stdout.write(f"{json.dumps({'file': str(found.path), **settings})}\n")
        return 0
    sys.stdout.write(f"# {found.path}{'' if is_there(found.path) else ' (not there)'}\n")
    for name, value, origin in found.origins:
        sys.stdout.write(
            f"{name} = {json.dumps(value)}{f'  # {origin}' if arguments.origin else ''}\n"
        )
    return 0


def _print_keys(configuration: "ConsoleConfiguration", *, is_json: bool) -> int:
    from console.command_registry import COMMAND_BY_ID  # noqa: PLC0415 (it is needed only here)
    from console.viewmodel.panels.key_bar import key_name  # noqa: PLC0415

    keys = {
        name: ", ".join(key_name(key) for key in text.split(","))
        for name, text in configuration.keys.items()
    }
    if is_json:
        sys.stdout.write(f"{json.dumps(keys)}\n")
        return 0
    for name, text in keys.items():
        sys.stdout.write(f"{name:<20} {text:<18} {COMMAND_BY_ID[name].title}\n")
    return 0


def _streams() -> dict[str, bool]:
    """Return which standard streams are terminals. Textual reads stdin and draws on stderr."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return {name: stream is not None and stream.isatty() for name, stream in streams.items()}


def _refuse(problem: str, code: int = EXIT_USAGE) -> NoReturn:
    sys.stderr.write(f"unicron-console: {problem}\n")
    raise SystemExit(code)


def _socket_of(arguments: argparse.Namespace) -> Path:
    if arguments.cluster is None:
        return Path(arguments.connect)
    from controller.clusterfile.controller_choice import (  # noqa: PLC0415 (slow)
        ChoiceError,
        cluster_place,
        socket_of,
    )

    try:
        return socket_of(cluster_place(arguments.cluster))
    except (ChoiceError, argparse.ArgumentTypeError) as error:
        _refuse(str(error))


def _refuse_without_controller(arguments: argparse.Namespace, problem: str) -> NoReturn:
    if arguments.cluster is None:
        _refuse(problem)
    from controller.clusterfile.controller_choice import (  # noqa: PLC0415 (slow)
        EXIT_NO_CONTROLLER,
        cluster_place,
        why_no_controller,
    )

    _refuse(why_no_controller(cluster_place(arguments.cluster), problem), EXIT_NO_CONTROLLER)


def _attach(path: Path, configuration: "ConsoleConfiguration", limits: _Limits) -> int:
    from console.client.controller_link import ApiLink  # noqa: PLC0415 (imported when it is needed)

    return _run_app(ApiLink(path, _clock()), configuration, limits, owns=None)


def _tell(path: Path) -> int:
    from console.client.controller_link import ApiLink  # noqa: PLC0415 (imported when it is needed)
    from console.plain_output import run_plain  # noqa: PLC0415

    clock = _clock()
    return run_plain(ApiLink(path, clock), clock)


def _serve_web(arguments: argparse.Namespace, demo_argv: Sequence[str]) -> int:
    """Serve the console to browsers on this machine until a signal comes."""
    try:
        from console.web.web_server import serve  # noqa: PLC0415 (it is optional)
    except ModuleNotFoundError as error:
        _refuse(f'--web needs {error.name}: pip install "unicron[web]"')
    names = ("theme", "keymap", "attention")
    look = [f"--{name}={text}" for name in names if (text := getattr(arguments, name)) is not None]
    look += [f"--{name}" for name in ("ascii", "mouse") if getattr(arguments, name)]
    look += ["--no-mouse"] if arguments.mouse is False else []
    console = [sys.executable, "-P", "-m", "console.cli", "--in-browser", *look]

    def served(what: Sequence[str], is_over: Callable[[], bool] = lambda: False) -> int:
        try:
            return serve([*console, *what], arguments.port, is_over)
        except OSError as error:
            _refuse(f"port {arguments.port}: {error.strerror or error}; choose another with --port")

    if arguments.playback is not None:
        path, options = _playback_words(arguments)
        return served([f"--playback={path}", *options])
    if not arguments.demo:
        place = _socket_of(arguments)
        if problem := connect_problem(place):
            _refuse_without_controller(arguments, problem)
        return served([f"--connect={place.absolute()}"])

    def run(child: "ServerChild") -> int:
        return served([f"--connect={child.socket_path}"], lambda: child.exit_code is not None)

    return _with_child("demo", demo_argv, run)


def _playback_argv(arguments: argparse.Namespace) -> list[str]:
    log = log_arguments(log_options(arguments))
    path, options = _playback_words(arguments)
    return [sys.executable, "-P", "-m", "controller.cli", "playback", path, *options, *log]


def _playback_words(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return what is played back, and the options that say which part of it."""
    given = {"--at": arguments.at, "--last": arguments.last}
    options = [f"{name}={text}" for name, text in given.items() if text is not None]
    return str(Path(arguments.playback).absolute()), options  # it begins with no dash


def _run_child(
    what: Literal["demo", "playback"],
    argv: Sequence[str],
    configuration: "ConsoleConfiguration",
    limits: _Limits = _UNLIMITED,
) -> int:
    from console.client.server_child import ServerChildSource  # noqa: PLC0415 (imported when needed)

    def run(child: "ServerChild") -> int:
        source = ServerChildSource(child, _clock())
        return _run_app(source, configuration, limits, owns=what, clean_up=child.end)

    return _with_child(what, argv, run)


def _with_child(
    what: Literal["demo", "playback"], argv: Sequence[str], run: "Callable[[ServerChild], int]"
) -> int:
    """Start a demo or a playback, and end it after ``run``; return the exit code."""
    from console.client.server_child import ServerChild  # noqa: PLC0415 (imported when needed)

    clock = _clock()
    with _exit_on_signals():
        child = ServerChild(argv, what)
        started_at = clock()
        try:
            code = run(child)
            if code != 0 and child.exit_code is not None:
                sys.stderr.write(f"{child.failure()}\n")
                return code
        finally:
            _end(child, clock() - started_at)
    return code


def _end(child: "ServerChild", ran_s: float) -> None:
    """End the child; of a demo say so. Signals meanwhile do not stop the cleaning up."""
    from console.viewmodel.drawing.numbers import seconds  # noqa: PLC0415 (imported when it is needed)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    had_ended = child.exit_code is not None
    is_demo = child.what == "demo"
    if is_demo and not had_ended:
        _print("ending the demo ...")
    is_orderly = child.end()
    _LOG.info(
        "child ended: code=%s by_itself=%s killed=%s", child.exit_code, had_ended, not is_orderly
    )
    if not is_orderly:
        _print(
            f"\rthe {child.what} did not end when asked, so it was killed; log: {child.log_path}\n"
        )
    elif is_demo and not had_ended:
        _print(f"\rthe demo ended after {seconds(ran_s)}\n")


@contextmanager
def _starting_line(*, is_shown: bool = True) -> Iterator[None]:
    """Say on the terminal that the console starts, for the length of the block.

    Imports take most of the time until the first frame.
    """
    if not is_shown or not sys.stderr.isatty():
        yield
        return
    _print("starting the console ...")
    try:
        yield
    finally:
        _print("\r\x1b[K")


def _print(text: str) -> None:
    # The terminal may be gone: then nobody reads this, and the demo must end all the same.
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def _run_app(
    source: "ControllerSource",
    configuration: "ConsoleConfiguration",
    limits: _Limits,
    *,
    owns: Literal["demo", "playback"] | None,
    clean_up: Callable[[], object] = lambda: None,
) -> int:
    # Textual reads it when it is imported. A key that comes right after a frame waits for up to two
    # of these periods; no more is drawn than ticks and keys ask for.
    os.environ.setdefault("TEXTUAL_FPS", "120")
    with quick_imports(), _starting_line():
        from console.app import ConsoleApp  # noqa: PLC0415 (Textual is slow to import)
        from console.client.source import ViewOnlySource  # noqa: PLC0415
        from console.operator_actions import OperatorSession  # noqa: PLC0415
        from console.themes.colours import Palette  # noqa: PLC0415
        from console.viewmodel.drawing.glyphs import ASCII, UNICODE  # noqa: PLC0415
        from console.widgets.appearance import Appearance  # noqa: PLC0415

    is_demo = owns == "demo"
    session = OperatorSession(
        _actor(),
        owns_demo=is_demo,
        owns_playback=owns == "playback",
        starts_armed=is_demo,
        is_view_only=limits.is_view_only,
        is_in_browser=limits.is_in_browser,
    )
    if limits.is_view_only:
        source = ViewOnlySource(source)
    settings = configuration.settings
    glyphs = ASCII if settings.ascii else UNICODE
    appearance = Appearance(Palette(settings.theme), glyphs, configuration.keys, settings.attention)
    # A key waits for the collector: 0.1 s if that looks at all of Textual's objects.
    gc.freeze()
    gc.set_threshold(2_000, 20, 10)
    app = ConsoleApp(source, session, _clock(), lambda: uuid.uuid4().hex, appearance=appearance)

    last_resorts: list[threading.Timer] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def leave(number: int, _: object) -> None:
            loop.call_soon_threadsafe(app.exit, 128 + number, 128 + number)
            last_resort = threading.Timer(LEAVE_LIMIT_S, give_up, (number,))
            last_resort.daemon = True
            last_resort.start()
            last_resorts.append(last_resort)

        def give_up(number: int) -> None:
            # The terminal is gone and a blocked write stops the event loop.
            clean_up()
            os._exit(128 + number)

        # Not the loop's own handlers: they would wait for it.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, leave)
        await app.run_async(mouse=settings.mouse)

    try:
        asyncio.run(run())
    finally:
        for last_resort in last_resorts:
            last_resort.cancel()
        _LOG.info("console ended: code=%d", app.return_code or 0)
    return app.return_code or 0


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn signals into an orderly exit while no event loop handles them."""

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    yield


def _clock() -> Callable[[], float]:
    return time.monotonic  # noqa: TID251 (the console's one real clock, injected from here)


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


if __name__ == "__main__":
    raise SystemExit(main())

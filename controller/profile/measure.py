"""``unicron profile measure``: have a running controller time a task at several sizes, on idle workers."""

import argparse
import getpass
import json
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from controller.api.client import Connection, NoControllerError, ask, connect
from controller.api.views import MeasuredSizeView, MeasurementView
from controller.api.wire import CancelMeasurement, MeasureTask
from controller.arguments import file_path
from controller.printing import refuse
from controller.profile.profile_options import check_output, count, sizes
from controller.profile.table_commands import print_table
from profiles.records import RecordError
from profiles.table_file import VERSION, LayoutRecord, TableFile, TablePoint, save_table

_MAX_ITERATIONS = 10_000

_EPILOG = """\
The task's model trains from fresh weights for two iterations and then for the number asked, at each size in
turn, the smallest first, and is killed. It runs on workers of nodes in service that no task holds or is
to get, and leaves no checkpoint. The task itself trains on. As soon as a plan waits for a decision, or a
task is to get one of the workers, the measurement ends; a size whose ranks fail is left out with the
reason. Ctrl-C, SIGTERM and the end of the terminal cancel it, and so does --cancel from elsewhere.

A command is measured with --contained alone: started beside itself it could write over its own checkpoints.
It gets a directory UNICRON_TASK_DIR of its own, which is left behind, and its lines are counted. Its FLOPs are
not known, so the size that it begins with, or else the smallest one measured, has the rate of its own table,
and the others follow.

What was measured goes into the controller's own table of the task too (docs/profiles.md), and with --output
into a file. Exit code 0 if every size that fits was measured, 1 if not, or if the controller refuses.

examples:
  unicron profile measure gpt-a --connect /run/unicron.sock
  unicron profile measure gpt-a --sizes 1,2,4 --iterations 20 --output measured.json --connect /run/unicron.sock
  unicron profile measure --cancel M-6 --connect /run/unicron.sock
"""


def add_arguments(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options."""
    parser = actions.add_parser(
        "measure",
        help="time a task of a running controller at several sizes, on idle workers",
        description="Time a task of a running controller at several sizes, on workers that are idle.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("task", metavar="TASK", nargs="?")
    parser.add_argument("--cancel", metavar="M-N", help="end this measurement instead")
    parser.add_argument(
        "--sizes", metavar="N,N,...", help="workers; default: all sizes that the task can have"
    )
    parser.add_argument(
        "--iterations", metavar="N", default="10", help="how many count at each size (default 10)"
    )
    parser.add_argument(
        "--connect",
        type=file_path,
        required=True,
        metavar="SOCKET",
        help="the controller's API socket",
    )
    parser.add_argument(
        "--contained",
        action="store_true",
        help="TASK is a command that keeps its files below UNICRON_TASK_DIR alone: measure it too",
    )
    parser.add_argument(
        "--output", type=file_path, metavar="FILE.json", help="write the table there"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return 0, 1 if something was not measured, 2 if an argument is wrong."""
    try:
        _check_task_or_cancel(arguments.task, arguments.cancel)
        if arguments.cancel is not None:
            return _cancel(arguments.connect, arguments.cancel)
        command = MeasureTask(
            request_id=uuid.uuid4().hex,
            actor=getpass.getuser(),
            task=arguments.task,
            sizes=() if arguments.sizes is None else sizes("--sizes", arguments.sizes),
            num_iterations=count("--iterations", arguments.iterations, _MAX_ITERATIONS),
            is_contained=arguments.contained,
        )
        check_output(arguments.output)
        with _signals_interrupt(), connect(arguments.connect) as connection:
            return _measure(arguments, connection, command)
    except (RecordError, NoControllerError) as error:
        return refuse("unicron profile", str(error))
    except OSError as error:
        if error.filename is None:
            raise
        return refuse("unicron profile", f"{error.filename}: {error.strerror}")


def _check_task_or_cancel(task: str | None, cancel: str | None) -> None:
    if (task is None) is (cancel is None):
        raise RecordError("give either a TASK to be measured or --cancel with a measurement")


def _cancel(path: Path, name: str) -> int:
    """Have the controller end a measurement, whoever has asked for it."""
    reply = ask(path, _cancellation(name))
    if not reply.is_ok:
        sys.stderr.write(f"unicron profile: {reply.message}\n")
        return 1
    sys.stderr.write(f"{name} is cancelled; what it has measured stays\n")
    return 0


def _cancellation(name: str) -> CancelMeasurement:
    return CancelMeasurement(request_id=uuid.uuid4().hex, actor=getpass.getuser(), measurement=name)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Have the end of the terminal or of the session interrupt like Ctrl-C, unless nohup or a shell ignores it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _measure(arguments: argparse.Namespace, connection: Connection, command: MeasureTask) -> int:
    """Ask for a measurement and keep what it finds, also if the controller ends before it."""
    reply = connection.ask(command)
    if not reply.is_ok:
        sys.stderr.write(f"unicron profile: {reply.message}\n")
        return 1
    watch = _Watch(reply.code)
    try:
        _follow(connection, arguments.connect, watch)
    finally:
        found = watch.newest
        if found is not None:
            if arguments.output is not None and any(size.flops_per_s for size in found.sizes):
                save_table(_table(found), arguments.output)
            _print(found, is_json=arguments.json)
    return 0 if found is not None and _is_complete(found) else 1


def _follow(connection: Connection, path: Path, watch: "_Watch") -> None:
    """Watch a measurement until it is over. An interrupt cancels it.

    Raises:
        NoControllerError: The controller is gone, and with it the measurement.
    """
    try:
        watch.follow(connection)
    except KeyboardInterrupt:
        ask(path, _cancellation(watch.name))  # it may be over meanwhile
        with connect(path) as again:
            watch.follow(again)


class _Watch:
    """Shows how a measurement goes: each size once it is done, and the one that runs.

    Attributes:
        name: Of the measurement.
        newest: What is known of it; None before anything is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest: MeasurementView | None = None
        self._printed: set[int] = set()

    def follow(self, connection: Connection) -> None:
        """Watch until it is over.

        Raises:
            NoControllerError: The controller is gone, or measures something else.
        """
        for view in connection.views():
            found = view.measurement
            if found is None or found.name != self.name:
                text = f"{self.name} is not there any more: another one has followed it"
                raise NoControllerError(text)
            self.newest = found
            self._show(found)
            if found.is_over:
                return
        raise NoControllerError(f"the controller has ended, and {self.name} with it")

    def _show(self, found: MeasurementView) -> None:
        for size in found.sizes:
            if (
                size.phase in {"measured", "failed", "skipped"}
                and size.workers not in self._printed
            ):
                self._printed.add(size.workers)
                _print_progress(f"{size.workers} worker(s): {_words(size)}", is_last=True)
            elif size.phase == "running":
                num = found.num_warm_up + found.num_iterations
                text = f"{size.workers} worker(s): iteration {size.iterations} of {num}"
                _print_progress(text, is_last=False)


def _print_progress(text: str, *, is_last: bool) -> None:
    """Show a line; on a terminal one that is not the last of its size is written over."""
    with suppress(OSError):  # the terminal may be closed
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if is_last else ""))
            sys.stderr.flush()
        elif is_last:
            sys.stderr.write(f"{text}\n")


def _words(size: MeasuredSizeView) -> str:
    if size.iteration_s is None or size.flops_per_s is None:
        return size.reason
    return f"{size.iteration_s:.3f} s an iteration, {size.flops_per_s:.3g} FLOP/s"


def _is_complete(found: MeasurementView) -> bool:
    """Whether nothing is missing but what does not fit: it went to its end, and no size failed."""
    phases = {size.phase for size in found.sizes}
    return found.ended == "all sizes are done" and "measured" in phases and "failed" not in phases


def _table(found: MeasurementView) -> TableFile:
    points = [
        TablePoint(
            workers=size.workers,
            flops_per_s=size.flops_per_s,
            layout=LayoutRecord(tp=size.layout.tp, pp=size.layout.pp, dp=size.layout.dp),
            origin="measured",
            iterations=found.num_iterations,
            iteration_s=size.iteration_s,
        )
        for size in found.sizes
        if size.flops_per_s
    ]
    return TableFile(version=VERSION, title=f"{found.task}, measured", points=points)


def _print(found: MeasurementView, *, is_json: bool) -> None:
    if is_json:
        throughput = {str(s.workers): s.flops_per_s for s in found.sizes if s.flops_per_s}
        answer: dict[str, Any] = {"throughput": throughput, **found.model_dump(mode="json")}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    elif any(size.flops_per_s for size in found.sizes):
        print_table(_table(found))

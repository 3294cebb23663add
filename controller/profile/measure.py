"""``unicron profile measure``: lets a running controller time a task at several sizes."""

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
from controller.arguments import HelpText, file_path
from controller.clusterfile.controller_choice import (
    ChoiceError,
    add_choice,
    choose_controller,
    refuse_without_controller,
)
from controller.printing import refuse
from controller.profile.profile_options import check_output, count, sizes
from controller.profile.table_commands import print_table
from profiles.records import RecordError
from profiles.table_file import VERSION, LayoutRecord, TableFile, TablePoint, save_table

_MAX_ITERATIONS = 10_000

_EPILOG = """\
At each size, smallest first, the task's model trains from fresh weights: two iterations to warm up, then
the number of --iterations. It uses idle workers of nodes in service and writes no checkpoint. The task itself
trains on.

The measurement ends early if a plan waits for a decision, or if a task needs one of its workers. A size
whose ranks fail is left out, with the reason. Ctrl-C, SIGTERM, the end of the terminal, or --cancel from
another terminal cancel it.

A command task is measured only with --contained, since a second copy could overwrite its checkpoints. The
copy gets its own directory UNICRON_TASK_DIR, which is not removed. Its FLOPs are unknown: its first size (or
else the smallest measured size) keeps the rate of its table, and the other sizes are scaled to that.

The results go into the controller's own table of the task (docs/profiles.md), and with --output into a file.

exit codes:
  0  every size that fits was measured
  1  a size was not measured, or the controller refused
  2  an argument is wrong, or a mistake in the cluster file
  3  no controller answers

examples:
  unicron profile measure gpt-a --cluster cluster.toml
  unicron profile measure gpt-a --sizes 1,2,4 --iterations 20 --output measured.json
  unicron profile measure --cancel M-6
"""


class _LostError(NoControllerError):
    """The measurement can't be followed any more, although it began."""


def add_arguments(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options."""
    parser = actions.add_parser(
        "measure",
        help="time a task of a running controller at several sizes, on idle workers",
        description="Time a task of a running controller at several sizes, on idle workers.",
        formatter_class=HelpText,
        epilog=_EPILOG,
    )
    parser.add_argument("task", metavar="TASK", nargs="?", help="the task to measure")
    parser.add_argument("--cancel", metavar="M-N", help="cancel this measurement; leave out TASK")
    parser.add_argument(
        "--sizes",
        metavar="N,N,...",
        help="numbers of workers (default: all sizes that the task can have)",
    )
    parser.add_argument(
        "--iterations",
        metavar="N",
        default="10",
        help="iterations timed at each size (default 10)",
    )
    add_choice(parser)
    parser.add_argument(
        "--contained",
        action="store_true",
        help="allow a command task: it writes files only below UNICRON_TASK_DIR",
    )
    parser.add_argument(
        "--output",
        type=file_path,
        metavar="FILE.json",
        help="write the measured table to this file",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit code that the help explains."""
    try:
        _check_task_or_cancel(arguments.task, arguments.cancel)
        choose_controller(arguments)
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
    except _LostError as error:
        return refuse("unicron profile", str(error))
    except NoControllerError as error:
        return refuse_without_controller("unicron profile", arguments, str(error))
    except (RecordError, ChoiceError) as error:
        return refuse("unicron profile", str(error))
    except OSError as error:
        if error.filename is None:
            raise
        return refuse("unicron profile", f"{error.filename}: {error.strerror}")


def _check_task_or_cancel(task: str | None, cancel: str | None) -> None:
    if (task is None) is (cancel is None):
        raise RecordError("give either a TASK to measure or --cancel M-N")


def _cancel(path: Path, name: str) -> int:
    """Ask the controller to end a measurement, also one that another operator started."""
    reply = ask(path, _cancellation(name))
    if not reply.is_ok:
        sys.stderr.write(f"unicron profile: {reply.message}\n")
        return 1
    sys.stderr.write(f"{name} is cancelled; its finished sizes stay in the table\n")
    return 0


def _cancellation(name: str) -> CancelMeasurement:
    return CancelMeasurement(request_id=uuid.uuid4().hex, actor=getpass.getuser(), measurement=name)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, unless they are ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
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
    """Start a measurement and keep its results, also if the controller ends first."""
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
    """Follow a measurement to its end. An interrupt cancels it.

    Raises:
        NoControllerError: The controller is gone, and with it the measurement.
    """
    try:
        watch.follow(connection)
    except KeyboardInterrupt:
        ask(path, _cancellation(watch.name))  # refused if it is over already, which is fine
        with connect(path) as again:
            watch.follow(again)


class _Watch:
    """Prints the progress of a measurement: the running size, and each size once it is done.

    Attributes:
        name: The measurement's name.
        newest: Its newest view; None before the first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest: MeasurementView | None = None
        self._printed: set[int] = set()

    def follow(self, connection: Connection) -> None:
        """Print progress until the measurement is over.

        Raises:
            NoControllerError: The controller has ended, or runs another measurement.
        """
        for view in connection.views():
            found = view.measurement
            if found is None or found.name != self.name:
                text = f"{self.name} is over, and its result was replaced by a later measurement"
                raise _LostError(text)
            self.newest = found
            self._show(found)
            if found.is_over:
                return
        raise _LostError(f"the controller has ended, and {self.name} with it")

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
    """Print a line. On a terminal the next one overwrites it, unless ``is_last``."""
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
    """Return whether the measurement ran to its end, measured a size, and no size failed."""
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

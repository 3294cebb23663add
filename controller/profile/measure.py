"""``unicron profile measure``: have a running controller time a task at several sizes, on idle workers."""

import argparse
import getpass
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.api.client import Connection, NoControllerError, ask, connect
from controller.api.views import MeasuredSizeView, MeasurementView
from controller.api.wire import CancelMeasurement, MeasureTask
from controller.profile.options import check_output, count, sizes
from controller.profile.tables import print_table
from profiles.records import RecordError
from profiles.table_file import VERSION, LayoutRecord, Table, TablePoint, save_table

_MAX_ITERATIONS = 10_000

_EPILOG = """\
The task's model trains from fresh weights for two iterations and then for the number asked, at each size in
turn, the smallest first, and is killed. It runs on workers of nodes in service that no task holds or is
to get, and leaves no checkpoint. The task itself trains on. As soon as a plan waits for a decision, or a
task is to get one of the workers, the measurement ends; a size whose ranks fail is left out with the
reason. Ctrl-C cancels it.

A command is measured with --contained alone: started beside itself it could write over its own checkpoints.
It gets a directory UNICRON_TASK_DIR of its own, which is left behind, and its lines are counted. Its FLOPs are
not known, so the smallest size has the rate of its own table, and the others follow.

What was measured goes into the controller's own table of the task too (docs/profiles.md), and with --output
into a file. Exit code 0 if every size that fits was measured, 1 if not, or if the controller refuses.

examples:
  unicron profile measure gpt-a --connect /run/unicron.sock
  unicron profile measure gpt-a --sizes 1,2,4 --iterations 20 --output measured.json --connect /run/unicron.sock
"""


def add_arguments(what: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options."""
    parser = what.add_parser(
        "measure",
        help="time a task of a running controller at several sizes, on idle workers",
        description="Time a task of a running controller at several sizes, on workers that are idle.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("task", metavar="TASK")
    parser.add_argument(
        "--sizes", metavar="N,N,...", help="workers; default: all sizes that the task can have"
    )
    parser.add_argument(
        "--iterations", metavar="N", default="10", help="how many count at each size (default 10)"
    )
    parser.add_argument(
        "--connect", type=Path, required=True, metavar="SOCKET", help="the controller's API socket"
    )
    parser.add_argument(
        "--contained",
        action="store_true",
        help="TASK is a command that keeps its files below UNICRON_TASK_DIR alone: measure it too",
    )
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write the table there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return 0, 1 if something was not measured, 2 if an argument is wrong."""
    try:
        command = MeasureTask(
            request_id=uuid.uuid4().hex,
            actor=getpass.getuser(),
            task=arguments.task,
            sizes=() if arguments.sizes is None else sizes("--sizes", arguments.sizes),
            num_iterations=count("--iterations", arguments.iterations, _MAX_ITERATIONS),
            is_contained=arguments.contained,
        )
        check_output(arguments.output)
        with connect(arguments.connect) as connection:
            reply = connection.ask(command)
            if not reply.is_ok:
                sys.stderr.write(f"unicron profile: {reply.message}\n")
                return 1
            found = _watch(connection, arguments.connect, reply.code)
        _print(found, is_json=arguments.json)
        if arguments.output is not None and any(size.flops_per_s for size in found.sizes):
            save_table(_table(found), arguments.output)
    except (RecordError, NoControllerError) as error:
        sys.stderr.write(f"unicron profile: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"unicron profile: {arguments.output}: {error.strerror}\n")
        return 2
    return 0 if _is_complete(found) else 1


def _watch(connection: Connection, path: Path, name: str) -> MeasurementView:
    """Show how the measurement goes; return it when it is over. An interrupt cancels it.

    Raises:
        NoControllerError: The controller is gone, and with it the measurement.
    """
    told: set[int] = set()
    try:
        return _follow(_measurements(connection, name), told)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
    command = CancelMeasurement(
        request_id=uuid.uuid4().hex, actor=getpass.getuser(), measurement=name
    )
    ask(path, command)  # it may be over meanwhile
    with connect(path) as again:
        return _follow(_measurements(again, name), told)


def _measurements(connection: Connection, name: str) -> Iterator[MeasurementView]:
    for view in connection.views():
        found = view.measurement
        if found is None or found.name != name:
            raise NoControllerError(f"{name} is not there any more: another one has followed it")
        yield found
    raise NoControllerError(f"the controller has ended, and {name} with it")


def _follow(measurements: Iterator[MeasurementView], told: set[int]) -> MeasurementView:
    """Show each size once it is done, and the one that runs; ``told`` are those that were shown."""
    while True:
        found = next(measurements)
        for size in found.sizes:
            if size.phase in {"measured", "failed", "skipped"} and size.workers not in told:
                told.add(size.workers)
                _tell(f"{size.workers} worker(s): {_words(size)}", is_last=True)
            elif size.phase == "running":
                num = found.num_warm_up + found.num_iterations
                text = f"{size.workers} worker(s): iteration {size.iterations} of {num}"
                _tell(text, is_last=False)
        if found.is_over:
            return found


def _tell(text: str, *, is_last: bool) -> None:
    """Show a line; on a terminal one that is not the last of its size is written over."""
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


def _table(found: MeasurementView) -> Table:
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
    return Table(version=VERSION, title=f"{found.task}, measured", points=points)


def _print(found: MeasurementView, *, is_json: bool) -> None:
    if is_json:
        throughput = {str(s.workers): s.flops_per_s for s in found.sizes if s.flops_per_s}
        answer: dict[str, Any] = {"throughput": throughput, **found.model_dump(mode="json")}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    elif any(size.flops_per_s for size in found.sizes):
        print_table(_table(found))

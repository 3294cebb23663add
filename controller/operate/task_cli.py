"""Requests about tasks.

``unicron submit`` brings new ones. ``stop``, ``start``, ``finish`` and ``archive`` lead them
through their life. ``limits`` and ``weight`` say how many workers they get.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from controller.api.client import ask
from controller.api.wire import LimitTask, OrderTask, SubmitTasks
from controller.arguments import count_of, decimal_of, file_path
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.clusterfile.task_collection import tasks_of
from controller.operate.asking import (
    RefusedError,
    add_common,
    complete_names,
    guarded,
    printed,
    send,
    who_asks,
)
from controller.printing import refuse

ORDERS: Final = ("stop", "start", "finish", "archive")
_TEXTS: Final = {
    "stop": """\
Its ranks finish the iteration, save a checkpoint and end. It stays stopped, also when the controller or the
cluster file is changed, until `unicron start`. Its workers go to other tasks.""",
    "start": """\
A task that was stopped waits for a plan to give it workers. A task that is held is tried again.""",
    "finish": """\
Its ranks finish the iteration, save a checkpoint and end. A finished task does not start again.""",
    "archive": """\
A finished task is not shown any more. Its checkpoints stay, and another task may have its name.""",
    "weight": """\
A plan gives workers to where weight times FLOP/s is highest. The order holds until the cluster file itself gets
another weight. Order the weight of the file to take it back.""",
    "limits": """\
The sizes that a plan may give a task. With --keeps-running yes it is stopped only if its smallest size has no
room. What is not named stays. An order holds until the cluster file itself gets another value.""",
    "submit": """\
FILE has [[task]] tables as a cluster file has them; paths in it are relative to its folder, on the controller's
machine. The tasks are queued until a plan gives them workers. They stay, whatever the cluster file says.""",
}
_EXAMPLES: Final = {
    "stop": ("unicron stop gpt-a",),
    "start": ("unicron start gpt-a",),
    "finish": ("unicron finish gpt-a",),
    "archive": ("unicron archive gpt-a",),
    "weight": ("unicron weight gpt-a 2.5",),
    "limits": (
        "unicron limits gpt-a --min 8 --max 64",
        "unicron limits gpt-a --max none --keeps-running yes",
    ),
    "submit": ("unicron submit gpt-c.toml --dry-run", "unicron submit gpt-c.toml"),
}


def add_arguments(verb: str, parser: argparse.ArgumentParser) -> None:
    """Define the options of one of the commands."""
    add_common(parser, _TEXTS[verb], _EXAMPLES[verb])
    if verb == "submit":
        parser.add_argument("file", metavar="FILE", type=file_path, help="a file of tasks")
        parser.add_argument("--dry-run", action="store_true", help="check the file, and ask nobody")
        return
    task = parser.add_argument("task", metavar="TASK", help="the task")
    complete_names(task, "task")
    if verb == "weight":
        parser.add_argument("weight", metavar="WEIGHT", type=_weight, help="above 0")
    elif verb == "limits":
        parser.add_argument("--min", type=_size, metavar="N", help="fewest workers")
        parser.add_argument("--max", type=_largest, metavar="N", help="most workers, or `none`")
        parser.add_argument(
            "--keeps-running", choices=("yes", "no"), help="stop it only if it has no room"
        )


def _weight(text: str) -> float:
    weight = decimal_of(text)
    if not weight:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a weight: write a number above 0")
    return weight


def _size(text: str) -> int:
    size = count_of(text)
    if not size or size > 10**6:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of workers above 0")
    return size


def _largest(text: str) -> int:
    return 0 if text == "none" else _size(text)


def run(arguments: argparse.Namespace) -> int:
    """Send the request; return the exit code."""
    verb = arguments.command
    if verb == "submit":
        return _submit(arguments)
    request_id, actor = who_asks()
    if verb in ORDERS:
        order = OrderTask(request_id=request_id, actor=actor, order=verb, task=arguments.task)
        return guarded(arguments, lambda: send(arguments, order))
    limit = LimitTask(request_id=request_id, actor=actor, task=arguments.task)
    if verb == "weight":
        limit = limit.model_copy(update={"weight": arguments.weight})
    else:
        keeps = arguments.keeps_running
        if (arguments.min, arguments.max, keeps) == (None, None, None):
            return refuse("unicron limits", "name a limit: --min, --max or --keeps-running")
        limits = {
            "min_workers": arguments.min, "max_workers": arguments.max,
            "keeps_running": None if keeps is None else keeps == "yes",
        }  # fmt: skip
        limit = limit.model_copy(update=limits)
    return guarded(arguments, lambda: send(arguments, limit))


def _submit(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file.absolute()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        return refuse("unicron submit", f"{arguments.file}: {reason.lower()}")
    try:
        tasks = tasks_of(path, text)
    except ClusterFileError as error:
        # A line for each mistake, without the program's name: editors jump to file and line.
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments.dry_run:
        names = ", ".join(f"{task.name} for {task.workers} workers" for task in tasks)
        sys.stdout.write(f"would be queued: {names}\n")
        return 0

    def work() -> int:
        request_id, actor = who_asks()
        request = SubmitTasks(
            request_id=request_id, actor=actor, name=path.name, text=text, folder=str(path.parent)
        )
        reply = ask(arguments.connect, request)
        if reply.code == "invalid" and not arguments.json:
            raise RefusedError(reply.message.replace("\n", "; "), 2)
        return printed(arguments, reply)

    return guarded(arguments, work)

"""``unicron down``: stops the tasks of a cluster, then its agents, then its controller."""

import argparse
import asyncio
import getpass
import sys
import time
import uuid
from typing import Final

from controller.api.client import NoControllerError, connect
from controller.api.views import ClusterView
from controller.api.wire import Shutdown
from controller.arguments import HelpText, file_path
from controller.clusterfile.cluster_reader import Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.core.state.phases import TaskPhase
from controller.printing import refuse
from controller.service.cluster_service import EVENT_LOG_NAME, ClusterService
from controller.service.run_cli import STARTING_ERRORS, why_ended
from controller.store.run_file import JOURNAL_NAME
from profiles.records import on_one_line

_PROGRAM: Final = "unicron down"
_NUM_LOOKS: Final = 100
_LOOK_S: Final = 0.05
_EPILOG: Final = """\
Tasks finish their iteration, save a checkpoint, and end. Then the agents are ended, with every process that
they started, then the controller. Checkpoints stay, and the next `unicron run` continues from them in a new run.
The journal of this run is kept beside the new one.

Without a running controller, one is started for this: it takes over, and ends the cluster.

exit codes:
  0  the cluster is down
  1  something could not be ended; the message names the node
  2  wrong options, a mistake in the cluster file, or not confirmed: nothing was stopped

examples:
  unicron down cluster.toml
  unicron down cluster.toml --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron down``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("cluster", metavar="CLUSTER", type=file_path, help="the cluster file")
    parser.add_argument("--yes", action="store_true", help="do not ask before anything is stopped")


def run(arguments: argparse.Namespace) -> int:
    """Bring the cluster down; return the exit code."""
    try:
        cluster = load_cluster(arguments.cluster)
    except ClusterFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    view = _view_of(cluster)
    _say_what_is_stopped(cluster, view)
    if not arguments.yes and (problem := _why_not_confirmed(cluster)):
        return refuse(_PROGRAM, problem)
    try:
        return _end_by_service(cluster) if view is None else _end_by_controller(cluster)
    except STARTING_ERRORS as error:
        refuse(_PROGRAM, why_ended(error))
        return 1
    except NoControllerError as error:
        refuse(_PROGRAM, str(error))
        return 1


def _view_of(cluster: Cluster) -> ClusterView | None:
    """Return what the controller shows; None if none answers."""
    try:
        with connect(cluster.socket) as connection:
            return next(connection.views(), None)
    except NoControllerError:
        return None


def _say_what_is_stopped(cluster: Cluster, view: ClusterView | None) -> None:
    lines = [f"cluster {cluster.name}: this stops"]
    if view is None:
        lines += [f"  task {task.name}" for task in cluster.tasks]
        names = [str(node.address.node) for node in cluster.nodes]
    else:
        lines += [
            f"  task {task.name}: {task.phase}, iteration {task.iteration}, {task.workers} ranks"
            for task in view.tasks
            if task.phase is not TaskPhase.FINISHED
        ]
        names = [node.node for node in view.nodes]
    lines.append(f"  the agents of {len(names)} node(s): {', '.join(names)}")
    if view is not None and view.controller is not None:
        lines.append(f"  the controller: process {view.controller.pid} on {view.controller.host}")
    else:
        lines.append("  no controller runs: one is started to stop the tasks")
    sys.stderr.write("\n".join(lines) + "\n")


def _why_not_confirmed(cluster: Cluster) -> str:
    if not sys.stdin.isatty():
        return "standard input is no terminal: add --yes to stop this without being asked"
    sys.stderr.write(f"stop cluster {cluster.name}? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    return "" if answer in {"y", "yes"} else "not confirmed: nothing was stopped"


def _end_by_controller(cluster: Cluster) -> int:
    """Ask the controller, and print its events until it has ended."""
    request = Shutdown(request_id=uuid.uuid4().hex, actor=getpass.getuser())
    with connect(cluster.socket) as connection:
        reply = connection.ask(request)
        if not reply.is_ok:
            refuse(_PROGRAM, reply.message)
            return 1
        for line in connection.lines():
            sys.stderr.write(f"{line.source:<6} {on_one_line(line.text)}\n")
    return _outcome(cluster)


def _outcome(cluster: Cluster) -> int:
    """Return 0 once the run is set aside; 1 if the controller ended without that."""
    for _ in range(_NUM_LOOKS):
        if not (cluster.run_dir / JOURNAL_NAME).exists():
            sys.stderr.write(f"cluster {cluster.name} is down\n")
            return 0
        time.sleep(_LOOK_S)
    refuse(_PROGRAM, f"not everything was ended: see {cluster.run_dir / EVENT_LOG_NAME}")
    return 1


def _end_by_service(cluster: Cluster) -> int:
    service = ClusterService(cluster, None, is_to_end=True)
    asyncio.run(service.run())
    return 0 if service.is_down else 1

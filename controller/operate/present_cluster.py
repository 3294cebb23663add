"""Reads the present cluster of a running controller or of a saved run."""

import getpass
import json
import uuid
from pathlib import Path

from controller.api.client import NoControllerError, ask
from controller.api.wire import DescribeCluster
from controller.core.cluster_spec import ClusterSpec, present_spec
from controller.store.run_file import RunError, decode_spec, read_run
from profiles.records import RecordError


def read_cluster(socket: Path | None, directory: Path | None) -> ClusterSpec | None:
    """Return the cluster of the run in ``directory``, else of the controller at ``socket``.

    Returns:
        None if both are None.

    Raises:
        RecordError: No controller answers, or the directory holds no saved run.
    """
    try:
        if directory is not None:
            machine, _ = read_run(directory)
            return present_spec(machine.state, machine.policy)
        return _ask(socket) if socket is not None else None
    except (NoControllerError, RunError) as error:
        raise RecordError(str(error)) from error


def _ask(socket: Path) -> ClusterSpec:
    question = DescribeCluster(request_id=uuid.uuid4().hex, actor=getpass.getuser())
    reply = ask(socket, question)
    if reply.data is None:
        raise NoControllerError(f"{socket}: the controller gave no answer: {reply.message}")
    return decode_spec(json.dumps(reply.data["spec"]).encode(), str(socket))

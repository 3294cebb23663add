"""The demo's nodes as a cluster, and ``unicron demo --nodes-only``: these nodes alone.

For the nodes alone a cluster file is written. A controller is started beside them, by
``unicron run DIR/cluster.toml``, and may end and begin again. The nodes and all their processes end
with this command. The files in DIR stay.
"""

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.node_groups import ListedNode
from controller.demo.demo_options import DemoOptions
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.local_node import LocalNode
from profiles.task_profiles import DEMO_TASKS

FILE_NAME: Final = "cluster.toml"
CLUSTER_NAME: Final = "demo"
_IDENTITY: Final = "id_ed25519"
_KNOWN_HOSTS: Final = "known_hosts"
_TASKS: Final = "tasks.toml"
_HEAD: Final = """\
# The nodes of `unicron demo --nodes-only`. They end with it; this file stays.
#
#     unicron run {path} --auto-heal

include = [{tasks}]

[cluster]
name = "{name}"
run_dir = "run"
checkpoint_dir = "checkpoints"

[ssh]
user = {user}
identity = "{identity}"
known_hosts = "{known_hosts}"
config = "none"                         # no SSH configuration of yours
python = {python}
"""


def demo_cluster(options: DemoOptions, nodes: Sequence[LocalNode], root: Path) -> Cluster:
    """Return the cluster of a demo, as a cluster file would describe it.

    Args:
        options: The options of the demo.
        nodes: The nodes.
        root: Directory of the run. Checkpoints lie below it.
    """
    return Cluster(
        name=CLUSTER_NAME,
        path=root / FILE_NAME,
        run_dir=root,
        nodes=tuple(
            ListedNode(node.address, False, options.failure_domains.get(node.node, ""), labels={})
            for node in nodes
        ),
        policy=options.policy,
        tasks=tuple(
            profile.model_copy(update={"num_iterations": options.num_iterations})
            if options.num_iterations is not None and profile.command is None
            else profile
            for profile in options.profiles
        ),
        checkpoints=root / "checkpoints",
        data=options.data_path,
        seed=options.seed,
    )


async def serve_nodes(
    options: DemoOptions, directory: Path, cluster: LocalCluster, say: Callable[[str], None]
) -> None:
    """Write the cluster file, say that the nodes are ready, and keep them until cancelled.

    Args:
        options: The options of the demo.
        directory: Gets the cluster file and what it names.
        cluster: The running nodes.
        say: Takes lines for the operator.

    Raises:
        OSError: A file can't be written.
        LocalClusterError: A lost node can't be started again.
    """
    restore = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, restore.set)
    path = write_cluster_file(directory, options.tasks, cluster.nodes)
    for node in cluster.nodes:
        say(
            f"{node.node} listens at {node.host}:{node.port};"
            f" `kill -9 {cluster.host_pid(node)}` loses it with all its processes"
        )
    say(f"ready: unicron run {path} --auto-heal")
    while True:
        await restore.wait()
        restore.clear()
        for node in cluster.nodes:
            if cluster.host_pid(node) is None:
                await cluster.restore_node(node)
                say(f"{node.node} is back; `kill -9 {cluster.host_pid(node)}` loses it again")


def write_cluster_file(directory: Path, tasks: Path | None, nodes: Sequence[LocalNode]) -> Path:
    """Write a cluster file for ``nodes`` with the key and the host keys; return its path.

    Args:
        directory: Gets the files; it is made with mode 0700 if it is new.
        tasks: The file of tasks to include; None for the demo's tasks.
        nodes: The nodes.

    Raises:
        OSError: A file can't be written.
    """
    directory = directory.absolute()
    directory.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(nodes[0].client_key_path, directory / _IDENTITY)
    (directory / _IDENTITY).chmod(0o600)
    known_hosts = [node.address.ssh.known_hosts_line for node in nodes]
    (directory / _KNOWN_HOSTS).write_text("".join(known_hosts))
    if tasks is None:
        (directory / _TASKS).write_bytes(DEMO_TASKS.read_bytes())
    path = directory / FILE_NAME
    path.write_text("".join(_lines(path, str(tasks.absolute()) if tasks else _TASKS, nodes)))
    return path


def _lines(path: Path, tasks: str, nodes: Sequence[LocalNode]) -> Iterator[str]:
    yield _HEAD.format(
        path=path,
        tasks=_quoted(tasks),
        name=CLUSTER_NAME,
        user=_quoted(nodes[0].user),
        identity=_IDENTITY,
        known_hosts=_KNOWN_HOSTS,
        python=_quoted(sys.executable),
    )
    for node in nodes:
        yield f"\n[[nodes]]\nname = {_quoted(node.node)}\nhost = {_quoted(node.host)}\n"
        yield f"port = {node.port}\nworkers = {node.num_workers}\n"
        yield f"state_dir = {_quoted(str(node.state_dir))}\n"
        yield f"kernel_log = {_quoted(str(node.kernel_log))}\n"


def _quoted(text: str) -> str:
    """Return a TOML string. JSON has the same escapes, apart from DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

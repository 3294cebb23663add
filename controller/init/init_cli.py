"""The command line of ``unicron init``."""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from controller.arguments import HelpText, file_path, num_workers
from controller.clusterfile.cluster_reader import load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.init.file_text import NoSizeError, Wishes, cluster_text, size_of
from controller.init.node_sources import (
    FoundNodes,
    SourceError,
    from_ansible,
    from_hostlist,
    from_slurm,
    from_ssh_config,
)
from controller.printing import refuse
from profiles.records import is_there, on_one_line

_PROGRAM: Final = "unicron init"
_OUTPUT: Final = Path("-")
_SSH_CONFIG: Final = Path("~/.ssh/config")
_IDENTITY: Final = ": identity: "
_EPILOG: Final = """\
Nothing is contacted but, for --from-slurm, the controller of Slurm. The file has every node, a comment for each
key, and a small task that shows whether the nodes train together. The source is read once: what the file says
counts from then on.

exit codes:
  0  the file is written
  2  wrong options, a source that can't be read, or a file that is there already: nothing was written

examples:
  unicron init --hosts "gpu-[001-016]" --gpus 8
  unicron init --from-ansible inventory.ini --group gpu --gpus 8
  unicron init --from-ssh-config "gpu-*" --gpus 8
  unicron init --from-slurm --partition train
  unicron init - --hosts n1,n2 --workers 2          # print it, write nothing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron init``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", default=Path("cluster.toml"),
        help="the file to write, or - for standard output (default: cluster.toml)",
    )  # fmt: skip
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--hosts", metavar="LIST", help='the nodes: "gpu-[001-016],login"')
    source.add_argument(
        "--from-ansible", type=file_path, metavar="INVENTORY", help="the hosts of an inventory"
    )
    source.add_argument(
        "--from-ssh-config", metavar="PATTERN", help="the hosts of ~/.ssh/config that match"
    )
    source.add_argument(
        "--from-slurm", action="store_true",
        help="the nodes and GPUs that scontrol shows; inside an allocation, its nodes alone",
    )  # fmt: skip
    parser.add_argument("--group", default="all", help="with --from-ansible: the group of hosts")
    parser.add_argument("--partition", default="", help="with --from-slurm: the partition of nodes")
    parser.add_argument("--name", default="", help="name of the cluster (default: the folder's)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--gpus", type=num_workers, metavar="N", help="GPUs of each node")
    size.add_argument(
        "--workers",
        type=num_workers,
        metavar="N",
        help="workers of each node without GPUs: CPU and gloo",
    )
    parser.add_argument("--user", default="", help="user to log in as")
    parser.add_argument(
        "--python", default="", help="interpreter on the nodes that has torch and megatron-core"
    )
    parser.add_argument(
        "--checkpoint-dir", default="/mnt/checkpoints", metavar="DIR",
        help="directory on the nodes that all of them share (default: /mnt/checkpoints)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(arguments: argparse.Namespace) -> int:
    """Write the cluster file; return the exit code."""
    path: Path = arguments.file
    is_printed = path == _OUTPUT
    if not is_printed and is_there(path) and not arguments.force:
        return refuse(_PROGRAM, f"{path} is there already: name another file, or add --force")
    wishes = Wishes(
        path="cluster.toml" if is_printed else str(path),
        name=arguments.name or _name_of(Path.cwd() if is_printed else path.absolute().parent),
        gpus=arguments.gpus,
        workers=arguments.workers,
        user=arguments.user,
        python=arguments.python,
        checkpoint_dir=arguments.checkpoint_dir,
    )
    try:
        found = _found(arguments)
        text = cluster_text(found.nodes, wishes)
        to_do = _check(text, Path.cwd() if is_printed else path.absolute().parent)
    except (SourceError, NoSizeError) as error:
        return refuse(_PROGRAM, str(error))
    except OSError as error:
        return refuse(_PROGRAM, f"{error.filename}: {error.strerror}")
    for note in (*found.notes, *to_do):
        sys.stderr.write(f"{on_one_line(note)}\n")
    if is_printed:
        sys.stdout.write(text)
        return 0
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return refuse(_PROGRAM, f"{path}: {error.strerror}")
    sizes = [size_of(node, wishes) for node in found.nodes]
    total = f"{sum(size for _, size in sizes)} {sizes[0][0]}"
    sys.stderr.write(f"{path}: {len(found.nodes)} nodes, {total}\n")
    sys.stderr.write(f"look at it, then: unicron check {path}\n")
    return 0


def _found(arguments: argparse.Namespace) -> FoundNodes:
    if arguments.hosts is not None:
        return from_hostlist(arguments.hosts)
    if arguments.from_ansible is not None:
        return from_ansible(arguments.from_ansible, arguments.group)
    if arguments.from_ssh_config is not None:
        return from_ssh_config(arguments.from_ssh_config, _SSH_CONFIG.expanduser())
    return from_slurm(arguments.partition)


def _name_of(folder: Path) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", folder.name.lower()).strip("-")[:40] or "cluster"


def _check(text: str, folder: Path) -> list[str]:
    """Read the text as a cluster file, in the folder that it is for.

    Returns:
        What is missing on this machine: keys of logins. The file may be for another one.

    Raises:
        SourceError: It is none, because of what an option or the source says.
        OSError: The folder can't be written.
    """
    number, name = tempfile.mkstemp(suffix=".toml", prefix=".unicron-init-", dir=folder)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        load_cluster(Path(name))
    except ClusterFileError as error:
        missing = [each.text for each in error.mistakes if _IDENTITY in each.text]
        if len(missing) == len(error.mistakes):
            return list(dict.fromkeys(text.partition(": ")[2] for text in missing))
        first = next(each for each in error.mistakes if _IDENTITY not in each.text)
        reason = f"this makes no cluster file: line {first.line}: {first.text}"
        raise SourceError(reason) from error
    finally:
        Path(name).unlink()
    return []

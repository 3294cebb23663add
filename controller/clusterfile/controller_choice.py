"""Which controller a command asks: options, the environment, or the file beside the user.

Only the name and the run directory are read from a cluster file. So a mistake elsewhere in a file
that is being edited does not keep operators from a controller that runs.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.arguments import file_path
from controller.clusterfile.cluster_keys import ClusterSection
from controller.clusterfile.file_mistakes import FileMistake, Mistakes
from controller.clusterfile.file_places import (
    SOCKET_NAME,
    RemoteClusterError,
    RemoteFile,
    RemotePlace,
    remote_place,
    run_directory,
)
from controller.clusterfile.section_reading import items_of, read_section
from controller.clusterfile.toml_document import TomlError, read_toml
from controller.printing import refuse
from profiles.records import is_file

VARIABLE: Final = "UNICRON_CLUSTER"
DEFAULT_FILE: Final = "cluster.toml"
EXIT_NO_CONTROLLER: Final = 3
EXPLAINED: Final = """\
Without --cluster and --connect, UNICRON_CLUSTER names the cluster file, else ./cluster.toml is used.
A controller on another machine is reached over SSH: --cluster ssh://HOST/PATH/OF/cluster.toml."""


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Define ``--cluster`` and ``--connect``, of which a user may give one."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--cluster",
        type=cluster_place,
        metavar="FILE",
        help="the cluster file that the controller was started with, also as ssh://[USER@]HOST[:PORT]/FILE"
        " (default: $UNICRON_CLUSTER, else ./cluster.toml)",
    )
    choice.add_argument(
        "--connect", type=file_path, metavar="SOCKET", help="the controller's API socket instead"
    )


def cluster_place(text: str) -> Path | RemotePlace:
    """Return what an option names: a file here, or one on another machine."""
    try:
        return remote_place(text) or file_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


class ChoiceError(Exception):
    """No controller is named, or its cluster file can't be read. The text is one line."""


def choose_controller(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> None:
    """Set ``arguments.connect`` to the controller's socket, and ``arguments.cluster`` to its file.

    With ``--connect`` no file is known. Then ``arguments.cluster`` stays None.

    Raises:
        ChoiceError: Nothing names a cluster, or the file can't be read, or its machine can't be
            reached.
    """
    if arguments.connect is not None:
        return
    if arguments.cluster is None:
        if named := environment.get(VARIABLE, ""):
            try:
                arguments.cluster = remote_place(named) or Path(named)
            except ValueError as error:
                raise ChoiceError(f"{VARIABLE}: {error}") from error
        elif is_file(Path(DEFAULT_FILE)):
            arguments.cluster = Path(DEFAULT_FILE)
        else:
            raise ChoiceError(
                f"no cluster is named: give --cluster FILE, set {VARIABLE}, or run it beside a"
                f" {DEFAULT_FILE}"
            )
    arguments.connect = socket_of(arguments.cluster)


def socket_of(place: Path | RemotePlace) -> Path:
    """Return a socket at which the controller of a cluster file answers, if it runs.

    Of a remote file that is the local end of a connection, which is open until the program ends.

    Raises:
        ChoiceError: The file can't be read, does not name the cluster, or is out of reach.
    """
    if isinstance(place, RemotePlace):
        from controller.clusterfile.remote_cluster import Tunnel  # noqa: PLC0415 (asyncssh is slow to import)

        try:
            return Tunnel(place, lambda file: _remote_socket(place, file)).socket
        except RemoteClusterError as error:
            raise ChoiceError(str(error)) from error
    return run_directory(_section_of(place), place.absolute().parent) / SOCKET_NAME


def _remote_socket(place: RemotePlace, file: RemoteFile) -> str:
    with tempfile.TemporaryDirectory(prefix="unicron-") as directory:
        copied = Path(directory) / DEFAULT_FILE
        copied.write_text(file.text, encoding="utf-8")
        try:
            section = _section_of(copied)
        except ChoiceError as error:
            raise ChoiceError(str(error).replace(str(copied), str(place))) from error
    environment = {"XDG_STATE_HOME": file.state_home}
    run_dir = run_directory(section, Path(place.path).parent, Path(file.home), environment)
    return str(run_dir / SOCKET_NAME)


def _section_of(path: Path) -> ClusterSection:
    try:
        document = read_toml(path)
    except TomlError as error:
        raise ChoiceError(str(FileMistake(path, error.line, str(error)))) from error
    mistakes = Mistakes()
    values = items_of(document, "cluster")
    section = read_section(document, ("cluster",), values, ClusterSection, mistakes)
    if section is None:
        raise ChoiceError(str(mistakes.found[0]))
    return section


def why_no_controller(cluster: Path | RemotePlace, reason: str) -> str:
    """Return one line: no controller runs this cluster file, and how to start one."""
    start = f"start one with: unicron run {cluster}"
    if isinstance(cluster, RemotePlace):
        start = f"start one there with: unicron run {cluster.path}"
    return f"no controller runs {cluster} ({reason}); {start}"


def refuse_without_controller(program: str, arguments: argparse.Namespace, reason: str) -> int:
    """Print that no controller answers, and how to start one; return the exit code."""
    if arguments.cluster is not None:
        reason = why_no_controller(arguments.cluster, reason)
    refuse(program, reason)
    return EXIT_NO_CONTROLLER

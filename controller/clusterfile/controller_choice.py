"""Which controller a command asks: options, the environment, or the file beside the user.

Only the name and the run directory are read from a cluster file. So a mistake elsewhere in a file
that is being edited does not keep operators from a controller that runs.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.arguments import file_path
from controller.clusterfile.cluster_keys import ClusterSection
from controller.clusterfile.cluster_reader import SOCKET_NAME, run_directory
from controller.clusterfile.file_mistakes import FileMistake, Mistakes
from controller.clusterfile.section_reading import items_of, read_section
from controller.clusterfile.toml_document import TomlError, read_toml
from controller.printing import refuse

VARIABLE: Final = "UNICRON_CLUSTER"
DEFAULT_FILE: Final = "cluster.toml"
EXIT_NO_CONTROLLER: Final = 3
EXPLAINED: Final = """\
Without --cluster and --connect, UNICRON_CLUSTER names the cluster file, else ./cluster.toml is used."""


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Define ``--cluster`` and ``--connect``, of which a user may give one."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--cluster",
        type=file_path,
        metavar="FILE",
        help="the cluster file that the controller was started with (default: $UNICRON_CLUSTER, else"
        " ./cluster.toml)",
    )
    choice.add_argument(
        "--connect", type=file_path, metavar="SOCKET", help="the controller's API socket instead"
    )


class ChoiceError(Exception):
    """No controller is named, or its cluster file can't be read. The text is one line."""


def choose_controller(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> None:
    """Set ``arguments.connect`` to the controller's socket, and ``arguments.cluster`` to its file.

    With ``--connect`` no file is known. Then ``arguments.cluster`` stays None.

    Raises:
        ChoiceError: Nothing names a cluster, or the file can't be read.
    """
    if arguments.connect is not None:
        return
    if arguments.cluster is None:
        if named := environment.get(VARIABLE, ""):
            arguments.cluster = Path(named)
        elif Path(DEFAULT_FILE).is_file():
            arguments.cluster = Path(DEFAULT_FILE)
        else:
            raise ChoiceError(
                f"no cluster is named: give --cluster FILE, set {VARIABLE}, or run it beside a"
                f" {DEFAULT_FILE}"
            )
    arguments.connect = socket_of(arguments.cluster)


def socket_of(path: Path) -> Path:
    """Return the API socket of the controller of a cluster file.

    Raises:
        ChoiceError: The file can't be read, or does not name the cluster.
    """
    try:
        document = read_toml(path)
    except TomlError as error:
        raise ChoiceError(str(FileMistake(path, error.line, str(error)))) from error
    mistakes = Mistakes()
    values = items_of(document, "cluster")
    section = read_section(document, ("cluster",), values, ClusterSection, mistakes)
    if section is None:
        raise ChoiceError(str(mistakes.found[0]))
    return run_directory(section, path.absolute().parent) / SOCKET_NAME


def why_no_controller(cluster: Path, reason: str) -> str:
    """Return one line: no controller runs this cluster file, and how to start one."""
    start = f"start one with: unicron run {cluster}"
    return f"no controller runs {cluster} ({reason}); {start}"


def refuse_without_controller(program: str, arguments: argparse.Namespace, reason: str) -> int:
    """Print that no controller answers, and how to start one; return the exit code."""
    if arguments.cluster is not None:
        reason = why_no_controller(arguments.cluster, reason)
    refuse(program, reason)
    return EXIT_NO_CONTROLLER

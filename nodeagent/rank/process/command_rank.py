"""A rank that is a command: started in the manner of torchrun, without torch here.

    python -m nodeagent.rank.process.command_rank --state-dir DIR --launch FILE

The process forks the rank and records its exit (``exit_recorder``). The rank agrees with its peers
on a port (``rendezvous_port``), sets the environment that torchrun would set, and becomes the
command. It leads a session of its own, and its output goes to its log.

With GPUs, ``CUDA_VISIBLE_DEVICES`` names the task's GPUs on this node in the order of local ranks.
So a program's ``cuda:LOCAL_RANK`` is the worker that the rank was given.
"""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.process_tools.network_interfaces import NoInterfaceError
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.rank_launch import CommandPlace, RankLaunch
from nodeagent.rank.process.exit_recorder import CannotStartError, run_recorded
from nodeagent.rank.process.rendezvous_port import RendezvousPortError, agree_on_master
from nodeagent.rank.process.training_network import network_variables
from profiles.placeholders import fill_in

EXIT_CANNOT_RUN: Final = 126
"""Exit code of a rank that could not become its command. A shell uses the same code."""

_ASYNC_ERRORS: Final = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
"""As with torchrun, the user's value of this variable counts, and 1 without it."""
_NO_LIMIT: Final = 2**31 - 1

_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores. The command would inherit that, so they are reset."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the command and wait for its end. Returns 0, or 2 if nothing could be started."""
    return run_recorded("nodeagent.rank.process.command_rank", arguments, _become, check)


def check(launch: RankLaunch) -> None:
    """Check that the program and its directory exist.

    Raises:
        CannotStartError: There is no such program or directory.
    """
    command = _place_of(launch).command
    program, cwd = arguments_of(launch)[0], command.cwd or "."
    if not Path(cwd).is_dir():
        raise CannotStartError(f"command: there is no directory {cwd}; set cwd to one that is")
    path = {**os.environ, **_own_variables(launch)}.get("PATH", os.defpath)
    # A program with a slash is relative to the directory that the command is started in.
    found = shutil.which(
        str(Path(cwd) / program) if "/" in program else program, path=_with_ours(path)
    )
    if found is None:
        raise CannotStartError(f"command: {program!r} is no program that can be run; mend argv")


def arguments_of(launch: RankLaunch) -> list[str]:
    """Return the command line, with the names in braces filled in."""
    values = _values(launch)
    return [fill_in(word, values) for word in _place_of(launch).command.argv]


def environment(
    launch: RankLaunch, inherited: Mapping[str, str], state_dir: Path, master: tuple[str, int]
) -> dict[str, str]:
    """Return a rank's environment: inherited, the task's variables, and its place."""
    place, own = _place_of(launch), _own_variables(launch)
    result = {_ASYNC_ERRORS: "1", **inherited, **own}
    result["PATH"] = _with_ours(result.get("PATH", os.defpath))
    if "PYTHONPATH" in own:
        # The agent's packages must be found: a program may attach. The task's own come first.
        result["PYTHONPATH"] = _joined(own["PYTHONPATH"], inherited.get("PYTHONPATH", ""))
    if launch.backend == "nccl":
        result["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.local_workers))
    return (
        result
        | network_variables(launch.network, result)
        | _torchrun_variables(launch, state_dir, master)
        | {
            "UNICRON_TASK": launch.task,
            "UNICRON_GENERATION": str(launch.generation),
            "UNICRON_TASK_DIR": place.task_dir,
            "UNICRON_RANKS_SOCKET": str(sockets_dir(state_dir) / "ranks.sock"),
        }
    )


def _torchrun_variables(
    launch: RankLaunch, state_dir: Path, master: tuple[str, int]
) -> dict[str, str]:
    """Return what torchrun sets for each of its workers.

    A node is a group. All ranks have one role, so a rank has the same number in it. A generation is
    an attempt. The number of attempts has no limit of torchrun's kind.
    """
    place = _place_of(launch)
    rank, world_size = str(launch.global_rank), str(launch.layout.num_workers)
    return {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(len(place.local_workers)),
        "GROUP_RANK": str(place.node_rank),
        "GROUP_WORLD_SIZE": str(place.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "TORCHELASTIC_RUN_ID": launch.task,
        "TORCHELASTIC_RESTART_COUNT": str(launch.generation - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(_NO_LIMIT),
        # Rank 0 itself listens on the port. No launcher has a store there.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": str(ProcessFiles.of(state_dir, launch).error),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    }


def _own_variables(launch: RankLaunch) -> dict[str, str]:
    """Return the variables of the task's file, with the names in braces filled in."""
    values = _values(launch)
    return {name: fill_in(text, values) for name, text in _place_of(launch).command.env.items()}


def _values(launch: RankLaunch) -> dict[str, str]:
    place, layout = _place_of(launch), launch.layout
    return {
        "task_dir": place.task_dir,
        "rank": str(launch.global_rank),
        "generation": str(launch.generation),
        "workers": str(layout.num_workers),
        "tp": str(layout.tp),
        "pp": str(layout.pp),
        "dp": str(layout.dp),
        "micro_batches": str(place.num_micro_batches),
    }


def _become(state_dir: Path, launch: RankLaunch) -> int:
    place = _place_of(launch)
    try:
        master = agree_on_master(sockets_dir(state_dir) / "ranks.sock", launch)
        if place.task_dir:
            Path(place.task_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        os.chdir(place.command.cwd or ".")
        variables = environment(launch, os.environ, state_dir, master)
        argv = arguments_of(launch)
        os.execvpe(argv[0], argv, variables)  # noqa: S606 - no shell
    except (RendezvousPortError, NoInterfaceError, OSError) as error:
        sys.stderr.write(f"command: {arguments_of(launch)[0]!r} can't be run: {error}\n")
    return EXIT_CANNOT_RUN


def _place_of(launch: RankLaunch) -> CommandPlace:
    if launch.command is None:
        raise CannotStartError("this rank has no command")
    return launch.command


def _with_ours(path: str) -> str:
    """Return ``path`` with the directory of the agent's own interpreter first."""
    return _joined(str(Path(sys.executable).parent), path)


def _joined(*paths: str) -> str:
    return os.pathsep.join(path for path in paths if path)


if __name__ == "__main__":
    sys.exit(main())

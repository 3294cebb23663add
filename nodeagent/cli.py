"""The node's command line: ``start``, ``run``, ``status`` and ``stop`` an agent.

Every failure is one line on standard error and exit code 1. ``start`` and ``status`` print one JSON
line on standard output and nothing else. Ranks are not commanded from here: that is the
controller's.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from nodeagent.control import AgentChoice, ControlError, ask_agent, start_agent, stop_agent
from nodeagent.process_tools.log_format import log_to_stderr
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.process_tools.state_lock import AgentRunsError, StateLock
from nodeagent.protocol.ids import NodeId
from nodeagent.ranks.launcher import COLD_MODULE, TEMPLATE_MODULE, Launcher
from nodeagent.session.local_queries import AskStatus
from nodeagent.workdir import BrokenWorkdirError, take_workdir


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        state_dir = _prepare(options.state_dir)
        if options.command == "start":
            return _start(state_dir, options)
        if options.command == "run":
            return _run(state_dir, options)
        if options.command == "status":
            return _status(state_dir)
        if options.command == "workdir":
            take_workdir(state_dir, options.digest)
            return 0
        stop_agent(state_dir, kill_ranks=options.kill_ranks, clock=SystemNodeClock())
    except (ControlError, AgentRunsError, BrokenWorkdirError, OSError) as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeagent", description="Unicron's agent on a node")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    helps = {
        "start": "start an agent, detached, unless one answers",
        "run": "run an agent in the foreground",
        "status": "print what the agent says about itself",
        "workdir": "take a version of a task's folder from standard input",
        "stop": "end the agent; its ranks and template stay",
    }
    parsers = {name: commands.add_parser(name, help=text) for name, text in helps.items()}
    for command in parsers.values():
        command.add_argument("--state-dir", type=Path, required=True, metavar="DIR")
    for name in ("start", "run"):
        _add_agent_options(parsers[name])
    parsers["start"].add_argument(
        "--unit", default="", metavar="NAME", help="the system unit of the site that runs the agent"
    )
    parsers["workdir"].add_argument("--digest", required=True)
    parsers["stop"].add_argument(
        "--kill-ranks", action="store_true", help="end the ranks and the template too"
    )
    return parser


def _add_agent_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", required=True, help="the node's name in the cluster")
    parser.add_argument("--num-workers", type=int, required=True, metavar="K")
    parser.add_argument(
        "--kernel-log",
        type=Path,
        metavar="PATH",
        help="file to follow as the kernel log (default: /dev/kmsg, else the journal or syslog)",
    )
    parser.add_argument("--no-template", action="store_true", help="start every rank cold")
    parser.add_argument(
        "--template-module",
        default=TEMPLATE_MODULE,
        metavar="MODULE",
        help="run as the template (default: %(default)s)",
    )
    parser.add_argument(
        "--cold-module",
        default=COLD_MODULE,
        metavar="MODULE",
        help="starts one rank without the template (default: %(default)s)",
    )


def _prepare(state_dir: Path) -> Path:
    """Make the state directory if it is missing; return its absolute path.

    Raises:
        OSError: It, or the place of its sockets, can't be made.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir = state_dir.resolve()
    state_dir.chmod(0o700)
    sockets_dir(state_dir)
    return state_dir


def _start(state_dir: Path, options: argparse.Namespace) -> int:
    passed_on = ["--template-module", options.template_module]
    passed_on += ["--cold-module", options.cold_module]
    if options.kernel_log is not None:
        passed_on += ["--kernel-log", str(options.kernel_log.absolute())]
    passed_on += ["--no-template"] if options.no_template else []
    choice = AgentChoice(state_dir, options.node, options.num_workers, options.unit)
    started = start_agent(choice, passed_on, SystemNodeClock())
    sys.stdout.write(started.to_json() + "\n")
    return 0


def _run(state_dir: Path, options: argparse.Namespace) -> int:
    # Half a second of imports that no other command needs. The agent leaves them out when it looks
    # for garbage; see ``__main__``.
    import asyncio  # noqa: PLC0415

    from nodeagent.agent import Agent, AgentSettings  # noqa: PLC0415

    gc.freeze()
    gc.enable()

    log_to_stderr()
    launcher = Launcher(state_dir, options.template_module, options.cold_module)
    settings = AgentSettings(
        NodeId(options.node),
        options.num_workers,
        launcher,
        has_template=not options.no_template,
        kernel_log=options.kernel_log,
    )

    async def run() -> None:
        await Agent(settings, SystemNodeClock()).run()

    with StateLock(state_dir):
        asyncio.run(run())
    return 0


def _status(state_dir: Path) -> int:
    status = ask_agent(state_dir, AskStatus())
    if status is None:
        return _fail(f"no agent answers in {state_dir}")
    sys.stdout.write(status.model_dump_json() + "\n")
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"nodeagent: {reason}\n")
    return 1

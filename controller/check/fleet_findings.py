"""What follows from what the nodes of a cluster have. Pure: facts in, findings out."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.bootstrap.node_facts import NodeFacts
from controller.check.check_findings import CheckFinding

_LEAST_FREE: Final = 100_000_000
_LITTLE_FREE: Final = 2_000_000_000
_LEAST_FILES: Final = 4096
_GIGABYTE: Final = 1e9


@dataclass(frozen=True, slots=True)
class Survey:
    """What one node has.

    Attributes:
        facts: Its interpreter.
        wanted_gpus: GPUs that the cluster file gives it; 0 for a node without.
        clock_ahead_s: Its clock minus the controller's.
        clock_error_s: How far that may be wrong.
        files: Soft and hard limit of open files.
        state_dir: Where its files are to be, or the nearest directory that is there.
        is_writable: Whether that can be written.
        free_bytes: Room there.
        gpus: GPUs that its driver shows; None if it does not answer.
        reads_kernel_log: Whether the user may read the kernel's log.
        missing_paths: Paths of the cluster file that are not there.
        forbids_forwarding: Whether its SSH server forbids it, so that a command carries sessions.
        ends_with_login: Why a process that no systemd runs ends with its login; empty if it stays.
    """

    facts: NodeFacts
    wanted_gpus: int
    clock_ahead_s: float
    clock_error_s: float
    files: tuple[int, int]
    state_dir: str
    is_writable: bool
    free_bytes: int
    gpus: int | None
    reads_kernel_log: bool
    missing_paths: tuple[str, ...] = ()
    forbids_forwarding: bool = False
    ends_with_login: str = ""


def check_nodes(surveys: Mapping[str, Survey], clock_limit_s: float) -> Iterator[CheckFinding]:
    """Yield what is not ready on the nodes that answered, and what is not alike on them."""
    for name, survey in surveys.items():
        yield from _of_node(name, survey, clock_limit_s)
    yield from _versions(surveys)


def _of_node(name: str, survey: Survey, clock_limit_s: float) -> Iterator[CheckFinding]:
    def found(level: str, subject: str, text: str, advice: str) -> CheckFinding:
        return CheckFinding(
            "error" if level == "error" else "warning", subject, (name,), text, advice
        )

    free = f"{survey.free_bytes / _GIGABYTE:.1f} GB are free at {survey.state_dir}"
    if not survey.is_writable:
        text = f"{survey.state_dir} can't be written by this user"
        yield found("error", "disk", text, "name another place as state_dir, in [ssh] or [[nodes]]")
    elif survey.free_bytes < _LITTLE_FREE:
        level = "error" if survey.free_bytes < _LEAST_FREE else "warning"
        yield found(level, "disk", free, "make room, or name another place as state_dir")
    ahead_s = survey.clock_ahead_s
    if abs(ahead_s) > clock_limit_s + survey.clock_error_s:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"its clock is {abs(ahead_s):.1f} s {way} the controller's"
        yield found("warning", "clock", text, "synchronise the clocks: chrony or systemd-timesyncd")
    if survey.gpus is None:
        text = "nvidia-smi does not answer within 20 s"
        yield found("error", "gpus", text, "restart the node, or reload the driver")
    elif survey.gpus < survey.wanted_gpus:
        text = (
            f"its driver shows {survey.gpus} GPUs, the cluster file gives it {survey.wanted_gpus}"
        )
        yield found("error", "gpus", text, "correct gpus in [[nodes]], or see nvidia-smi there")
    if 0 <= survey.files[1] < _LEAST_FILES:
        text = f"a process may open {survey.files[1]} files at most"
        yield found(
            "warning", "open files", text, f"raise the hard limit (nofile) to {_LEAST_FILES}"
        )
    if not survey.reads_kernel_log:
        text = "this user can't read the kernel's log: Xid, ECC and link faults are not seen"
        advice = "add the user to the group adm or systemd-journal, or name a file as kernel_log"
        yield found("warning", "kernel log", text, advice)
    if survey.ends_with_login:
        text = f"an agent that a login starts ends with it: {survey.ends_with_login}"
        advice = "loginctl enable-linger USER there as root, or name a system unit as unit"
        yield found("error", "login", text, advice)
    for path in survey.missing_paths:
        yield found("error", "data", f"there is no {path}", "copy it there, or correct data")


def check_ring(
    outcomes: Mapping[tuple[str, str], str], places: Mapping[str, str]
) -> Iterator[CheckFinding]:
    """Yield the nodes that can't connect to their neighbours, or can't be reached by them.

    A node is named alone if all that leads to it has failed, or all that comes from it.

    Args:
        outcomes: Why the first node could not connect to the second; empty if it could.
        places: Training address of each node.
    """
    failed = {pair: reason for pair, reason in outcomes.items() if reason}
    if len(failed) == len(outcomes) > 2:
        text = f"no node can connect to another one: {next(iter(failed.values()))}"
        yield _ring_finding(tuple(places), text)
        return
    for is_both in (True, False):
        for name in places:
            inward = {pair for pair in outcomes if pair[1] == name}
            outward = {pair for pair in outcomes if pair[0] == name}
            is_deaf = len(inward) > 1 and inward <= failed.keys()
            is_mute = len(outward) > 1 and outward <= failed.keys()
            if not (is_deaf and is_mute if is_both else is_deaf or is_mute):
                continue
            reason = failed[min(inward if is_deaf else outward)]
            others = " and ".join(sorted({source for source, _ in inward}))
            text = f"{others} can't connect to it at {places[name]}" if is_deaf else ""
            if is_deaf and is_mute:
                text += ", nor it to them"
            elif is_mute:
                text = f"it can't connect to {others}; they can connect to it"
            yield _ring_finding((name,), f"{text}: {reason}")
            for pair in (inward if is_deaf else set()) | (outward if is_mute else set()):
                failed.pop(pair, None)
    for (source, target), reason in sorted(failed.items()):
        way = f"{source} can't connect to {target} at {places[target]}: {reason}"
        back = failed.get((target, source), "")
        if back and source > target:
            continue
        text = f"{way}; nor {target} to {source}" if back else f"{way}; {target} can to {source}"
        yield _ring_finding((source, target), text)


def _ring_finding(nodes: tuple[str, ...], text: str) -> CheckFinding:
    advice = (
        "allow all TCP ports between nodes in their firewalls, or name the network that they share:"
        " training_address or training_interface, in [[nodes]]"
    )
    return CheckFinding("error", "training network", nodes, text, advice)


def _versions(surveys: Mapping[str, Survey]) -> Iterator[CheckFinding]:
    """Yield versions that differ between nodes. What most nodes have counts as right."""
    by_name: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, survey in surveys.items():
        python = ".".join(map(str, survey.facts.python[:2]))
        for name, version in {"Python": python, **survey.facts.packages}.items():
            if version and name != "pydantic":
                by_name[name][version].append(node)
    for name, nodes in by_name.items():
        counts = Counter({version: len(having) for version, having in nodes.items()})
        usual, _ = counts.most_common(1)[0]
        for version, having in sorted(nodes.items()):
            if version != usual:
                text = f"{name} {version}, and {name} {usual} on {_some(nodes[usual])}"
                advice = "ranks of one task need equal versions: install the same on all nodes"
                yield CheckFinding("error", "versions", tuple(having), text, advice)


def _some(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"

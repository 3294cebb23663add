"""The catalogue of drills: one for every status that can be staged without a GPU.

A fault that strikes a rank strikes at its next micro-batch, unless it is a signal. The method named
is the detector that sees the fault as it is staged: an ECC error may be seen as an exception or in
the kernel log, and both are drilled. A link flaps where its changes are counted over time: that is
statistical monitoring, whoever reports each of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from profiles.drills.drill import Drill, Expectation
from profiles.drills.exception_texts import RAISED_BY_STATUS, Raised
from profiles.drills.kernel_texts import KERNEL_MESSAGES, KernelMessage
from profiles.faults.status import DetectionMethod, Severity, Status
from profiles.faults.status_table import default_statuses, named

_SUPERVISION: Final[DetectionMethod] = "process supervision"
_PROPAGATION: Final[DetectionMethod] = "exception propagation"
_STATISTICS: Final[DetectionMethod] = "online statistical monitoring"
_HEALTH: Final[DetectionMethod] = "node health monitoring"

_DIED: Final = Expectation("exited_abnormally", "SEV2", _SUPERVISION, "restart", "rank")
_STARVED: Final = Expectation(
    "exited_abnormally",
    "SEV2",
    _SUPERVISION,
    "restart",
    "rank",
    says="killed by the kernel for memory",
)
_HANGS: Final = Expectation("task_hang", "SEV2", _STATISTICS, "restart", "rank")
_LOST: Final = Expectation("lost_connection", "SEV1", _HEALTH, "reconfigure", "node")
_DIVERGES: Final = Expectation("nan_loss", "SEV2", _STATISTICS, "none", "task", "held")
_SPIKES: Final = Expectation("nan_loss", "SEV2", _STATISTICS, "none", "task")
_UNSEEN: Final = Expectation("none", "none", None, "none", "none", "unharmed")
_TAKEN_OVER: Final = Expectation("takeover", "none", None, "none", "none", "unharmed")
_OUT_OF_SIGHT: Final = Expectation("unreachable", "none", _HEALTH, "none", "node", "unharmed")


def _of(status: Status, method: DetectionMethod) -> Expectation:
    """Return what table 1 and section 4 of the paper demand of a rank's fault."""
    match status.severity:
        case Severity.SEV1:
            return Expectation(status, "SEV1", method, "reconfigure", "node")
        case Severity.SEV2:
            return Expectation(status, "SEV2", method, "restart", "rank")
        case Severity.SEV3:
            return Expectation(status, "SEV3", method, "reattempt", "rank")
        case Severity.NONE:
            return _UNSEEN
        case _:
            assert_never(status.severity)


def _of_node(status: Status, method: DetectionMethod) -> Expectation:
    """Return the same for a fault of a node. Training continues under a fault of the network."""
    if status.severity is Severity.SEV3:
        return Expectation(status, "SEV3", method, "none", "node")
    return _of(status, method)


def _exception(raised: Raised) -> Drill:
    return Drill(
        "exception",
        f"Raise {raised.exception}: {raised.status}",
        f"The rank raises {raised.exception} with the message that the real software gives.",
        "rank",
        _of(raised.status, _PROPAGATION),
        "loop",
        ("status", raised.status),
    )


def _kernel(message: KernelMessage) -> Drill:
    lines = "these lines" if "\n" in message.text else "this line"
    if message.raises:
        return Drill(
            "kernel-log",
            f"Kernel message {message.name} and its exception",
            f"The kernel log of the rank's node gets {lines}, and the rank the exception that goes with it:"
            " one fault, one incident.",
            "rank",
            replace(_of(message.status, _PROPAGATION), found_by="kernel log"),
            "loop",
            ("line", message.name),
        )
    return Drill(
        "kernel-log",
        f"Kernel message {message.name}",
        f"The node's kernel log gets {lines}; its ranks are not touched.",
        "node",
        _of_node(message.status, _HEALTH),
        option=("line", message.name),
    )


def drills_of(
    exceptions: Mapping[str, Raised], messages: Mapping[str, KernelMessage]
) -> tuple[Drill, ...]:
    """Return every drill, in the order of menus and of the drill matrix.

    Args:
        exceptions: By status; one drill each.
        messages: Of the kernel log, by name; one drill each.
    """
    return (
        *_BEFORE_EXCEPTIONS,
        *(_exception(raised) for raised in exceptions.values()),
        *_BEFORE_MESSAGES,
        *(_kernel(message) for message in messages.values()),
        *_LAST,
    )


_BEFORE_EXCEPTIONS: Final = (
    Drill("kill-rank", "Kill a rank", "SIGKILL to the rank's process.", "rank", _DIED),
    Drill(
        "exit-code", "Have a rank exit with 3", "The rank calls _exit(3) and reports nothing.",
        "rank", _DIED, "loop",
    ),
    Drill(
        "segfault", "Segmentation fault in a rank", "The rank reads address 0: a real SIGSEGV.",
        "rank", _DIED, "loop",
    ),
    Drill(
        "memory-kill", "Have the kernel kill a rank for memory",
        "As root the rank's process goes into a memory cgroup with a limit below what it holds, and"
        " the kernel kills it. Where no such cgroup can be made it gets a SIGKILL after the kernel's two lines"
        " in the node's kernel log, and a note says so.",
        "rank", _STARVED,
    ),
    Drill(
        "exception", "Raise an exception in a rank",
        "The rank raises an exception of its own inside a micro-batch.",
        "rank", _of(named("other_software_error"), _PROPAGATION), "call",
    ),
)  # fmt: skip

_BEFORE_MESSAGES: Final = (
    Drill(
        "disk-full", "Write to a full disk in a rank",
        "The rank writes to /dev/full: a real ENOSPC from the kernel, without a disk being filled.",
        "rank", _of(default_statuses()["disk_full"], _PROPAGATION), "loop",
    ),
    Drill(
        "freeze-rank", "Freeze a rank",
        "SIGSTOP to the rank's process: the process lives but does not run.",
        "rank", _HANGS,
    ),
    Drill(
        "hang-collective", "Hang a rank before a collective",
        "The rank never enters the vote of its iteration, in which all others wait.",
        "rank", _HANGS, "loop",
    ),
    Drill(
        "slow-rank", "Slow a rank down",
        "Each micro-batch of the rank takes 1.5 x its time, for 20 iterations.",
        "rank", Expectation("straggler", "none", _STATISTICS, "none", "rank", "unharmed"), "loop",
    ),
    Drill(
        "nan", "One NaN in a rank's loss",
        "The loss of one micro-batch is multiplied by NaN, once: the iteration is run again, whole.",
        "rank", _UNSEEN, "loop", ("times", "1"),
    ),
    Drill(
        "nan", "NaN in a rank's loss, twice",
        "The loss of one micro-batch is multiplied by NaN, and again when the iteration is run again.",
        "rank", _DIVERGES, "loop", ("times", "2"),
    ),
    Drill(
        "loss-spike", "Loss spike",
        "The rank's losses and gradients grow until the loss of the task is 6 x its level, for 8"
        " iterations. They are committed: nothing is restarted, and the incident ends with the spike.",
        "rank", _SPIKES, "loop",
    ),
)  # fmt: skip

_LAST: Final = (
    Drill(
        "link-flap", "Flapping link",
        "The node's kernel log says twice within a second that a port of an mlx5 NIC went down and up."
        " No interface is touched.",
        "node", _of_node(named("link_flapping"), _STATISTICS),
    ),
    Drill(
        "lose-node", "Lose a node",
        "Everything on the node is killed at once: SSH server, agent, ranks. Its port refuses.",
        "node", _LOST,
    ),
    Drill(
        "lose-two-nodes", "Lose two nodes at once",
        "Everything on the node and on the next one is killed at once, as by a rack that loses power."
        " A third node must be left.",
        "node", _LOST, min_nodes=3,
    ),
    Drill(
        "freeze-node", "Lose a node without a reset",
        "Every process on the node is frozen (SIGSTOP) for 15 s, as by a power loss or a cut network:"
        " nothing answers, no connection is reset.",
        "node", _LOST,
    ),
    Drill(
        "partition", "Cut a node off from the network",
        "The link of the node's network namespace is taken down for 15 s: neither controller nor peers"
        " reach it, its ranks keep trying, and nothing is reset. Then the link is taken up.",
        "node", _LOST, needs_namespaces=True,
    ),
    Drill(
        "freeze-ssh", "Freeze a node's SSH server",
        "The node's SSH server is frozen (SIGSTOP) for 8 s: controller and peers can't reach the node,"
        " while its ranks reach their peers.",
        "node", _OUT_OF_SIGHT,
    ),
    Drill(
        "kill-agent", "Kill a node's agent", "SIGKILL to the agent; the next one adopts its ranks.",
        "node", _OUT_OF_SIGHT,
    ),
    Drill(
        "kill-ssh", "Cut a node's SSH connection",
        "The node's SSH sessions are ended; server, agent and ranks continue.",
        "node", _OUT_OF_SIGHT,
    ),
    Drill(
        "kill-controller", "Kill the controller",
        "The controller is killed: core, timers and sessions. After a second the next"
        " one takes over from its journal and rendezvous files. The demo's own process lives on.",
        "controller", _TAKEN_OVER,
    ),
)  # fmt: skip

DRILLS: Final = drills_of(RAISED_BY_STATUS, KERNEL_MESSAGES)

DRILL_BY_KIND: Final[Mapping[str, Drill]] = {drill.kind: drill for drill in DRILLS}

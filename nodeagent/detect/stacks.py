"""Reads the stack of a training thread: does it wait for other ranks, and in which collective?

A rank waits if its innermost frames are a collective of torch, a pipeline exchange of Megatron, or
Unicron's own wait for one of them. Outer frames do not count: a wrapper of ``torch.distributed``
surrounds everything that a model computes. A wait for a collective that was started before happens
in native code without a frame. Then the source of the innermost line shows it.

Stacks come from the rank itself, from Python's fault handler, or from ``py-spy``. All are converted
to one form: frames, the innermost first. ``rank_inspector`` collects them.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from nodeagent.protocol.standing import MAX_STACK_CHARS, Standing

_NUM_INNERMOST: Final = 8
_WAITS: Final = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/rendezvous.py",
    "/megatron/core/pipeline_parallel/p2p_communication.py",
    "/nodeagent/rank/groups/halting.py",
    "/nodeagent/rank/agent_link/rendezvous_store.py",
)
_OWN_WAIT: Final = "wait_unless_halted"
_NATIVE_WAIT: Final = ".wait()"
_BORN_IN: Final = "_bootstrap"
"""Outermost function of every thread but the main one, which trains."""
_MAIN: Final = "MainThread"
_NUM_PATH_PARTS: Final = 3

_DUMPED_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_DUMPED_FRAME: Final = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$'
)


class StackFrame(NamedTuple):
    """One call of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return it in a few words."""
        return f"{self.function} ({'/'.join(self.file.split('/')[-_NUM_PATH_PARTS:])}:{self.line})"


class Thread(NamedTuple):
    """A thread's stack, the innermost frame first."""

    name: str
    frames: Sequence[StackFrame]

    @property
    def is_main(self) -> bool:
        """Whether it is the process's first thread, as far as the stack shows."""
        return not any(frame.function == _BORN_IN for frame in self.frames)


def standing_of(
    threads: Iterable[Thread],
    source: Literal["rank", "faulthandler", "py-spy"],
    line_of: Callable[[str, int], str],
) -> Standing | None:
    """Return where a rank with these threads stands; None where no main thread is among them.

    ``line_of`` returns a line of a source file, empty if there is none.
    """
    # A library may start threads past ``threading``. The interpreter lists the oldest thread last;
    # py-spy knows it by name.
    oldest_first = reversed(list(threads))
    threads = sorted(oldest_first, key=lambda one: (not one.is_main, _MAIN not in one.name))
    if not threads or not threads[0].is_main or not threads[0].frames:
        return None
    frames = threads[0].frames
    threads[0] = Thread("training thread", frames)
    collective = waits_in(frames, line_of(frames[0].file, frames[0].line))
    return Standing(
        where="computing" if collective is None else "collective",
        place=str(frames[0]),
        collective=collective or "",
        stack=render(threads),
        source=source,
    )


def waits_in(frames: Sequence[StackFrame], line: str = "") -> str | None:
    """Return the collective that a thread with these frames waits in; None if it does not.

    The innermost frame comes first; ``line`` is the source that it executes. The text names the
    operation and who called it.
    """
    waiting = [
        number
        for number, frame in enumerate(frames[:_NUM_INNERMOST])
        if frame.file.endswith(_WAITS)
    ]
    if not waiting:
        return str(frames[0]) if _NATIVE_WAIT in line else None
    wait, callers = frames[waiting[-1]], frames[waiting[-1] + 1 :]
    caller = next((one for one in callers if not one.function.startswith("wrap")), None)
    if caller is None:
        return str(wait)
    return str(caller) if wait.function == _OWN_WAIT else f"{wait.function} in {caller}"


def render(threads: Iterable[Thread]) -> str:
    """Return stacks as text for operators, at most ``MAX_STACK_CHARS``; what is last goes first."""
    lines = [
        line
        for thread in threads
        for line in (f"{thread.name}:", *(f"    {frame}" for frame in thread.frames))
    ]
    text = "\n".join(lines)
    return text if len(text) <= MAX_STACK_CHARS else text[: MAX_STACK_CHARS - 4] + "\n..."


def parse_dump(text: str) -> list[Thread]:
    """Return the threads of a dump of ``faulthandler``; lines that are none are passed over."""
    stacks: list[list[StackFrame]] = []
    for line in text.splitlines():
        if _DUMPED_THREAD.match(line):
            stacks.append([])
        elif stacks and (found := _DUMPED_FRAME.match(line)):
            stacks[-1].append(StackFrame(found["file"], int(found["line"]), found["function"]))
    return [Thread("another thread", frames) for frames in stacks]


def parse_py_spy(text: str) -> list[Thread]:
    """Return the threads in what ``py-spy dump --json`` prints; none where it is no such thing."""
    try:
        listed = json.loads(text)
        return [
            Thread(
                str(each.get("thread_name") or "a thread"), [_frame(one) for one in each["frames"]]
            )
            for each in listed
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _frame(frame: Mapping[str, str | int]) -> StackFrame:
    return StackFrame(str(frame["filename"]), int(frame["line"]), str(frame["name"]))

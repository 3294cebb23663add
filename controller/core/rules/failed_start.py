"""Starts that fail alike: what can't start anywhere is the program's fault, and no node's.

A start has failed if it ended before it committed an iteration. Two starts fail alike if the
program says the same, apart from numbers: ranks, ports, process ids and addresses differ.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.evidence import Evidence
from nodeagent.protocol.ids import Generation, NodeId

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_EXIT_CODE: Final = "exit code "


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start that failed on one node.

    Attributes:
        generation: The generation that did not start.
        node: Where.
        words: What the program said, without its numbers.
    """

    generation: Generation
    node: NodeId
    words: str


def failed_starts(evidence: Iterable[Evidence], generation: Generation) -> list[FailedStart]:
    """Return the failed starts that the evidence about one generation shows, oldest first."""
    return [
        FailedStart(generation, item.node, likeness(item.own_words))
        for item in evidence
        if item.own_words and item.node is not None
    ]


def likeness(own_words: str) -> str:
    """Return the words without their numbers; an exit code stays what it is."""
    return own_words if is_exit_code(own_words) else _NUMBER.sub("#", own_words)


def is_exit_code(own_words: str) -> bool:
    """Return whether the program said nothing but its exit code."""
    return own_words.startswith(_EXIT_CODE)


def alike(starts: Sequence[FailedStart], words: str) -> list[FailedStart]:
    """Return the starts that failed with these words."""
    return [start for start in starts if start.words == words]


def is_of_program(same: Sequence[FailedStart], *, has_trained: bool, can_move: bool) -> bool:
    """Return whether starts that failed alike are the program's fault.

    Args:
        same: The starts, the newest included.
        has_trained: Whether the program has ever trained here. Then one start is always repeated,
            because what it needs may only have been away for a moment.
        can_move: Whether its ranks can start on another node than the newest one.
    """
    num_nodes = len({start.node for start in same})
    num_generations = len({start.generation for start in same})
    if num_nodes > 1:
        return not has_trained or num_generations > 1
    return not has_trained and num_generations > 1 and not can_move

"""The screen: which rules are worth trying on a line, from the literals it holds.

All literals of all rules are searched for in one pass, by one expression in the shape of a prefix
tree: at every place of the line only one branch can go on, so the time does not depend on how many
literals there are.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiles.faults.rules import Pattern, Rule

_END: Final = ""


class Screen:
    """Finds the rules that a line could match. Keeps nothing about the lines."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Index ``rules``. Takes some milliseconds."""
        self._rules = rules
        self._patterns_by_literal: dict[str, list[tuple[int, Pattern]]] = defaultdict(list)
        self._always: list[tuple[int, Pattern]] = []
        for number, rule in enumerate(rules):
            for pattern in rule.patterns:
                for literal in pattern.literals:
                    self._patterns_by_literal[literal].append((number, pattern))
                if not pattern.literals:
                    self._always.append((number, pattern))
        literals = list(self._patterns_by_literal)
        self._shorter = {
            literal: [other for other in literals if literal.startswith(other)]
            for literal in literals
        }
        # A look-ahead, because literals may overlap; of those that begin at one place it finds the
        # longest, and the shorter ones are its beginnings.
        self._search = re.compile(f"(?=({_expression(_tree(literals))}))") if literals else None

    def rules_for(self, shape: str) -> tuple[Rule, ...]:
        """Return the rules worth trying, each with those of its patterns that are.

        Args:
            shape: The line in lower case and without its digits.
        """
        held: set[str] = set()
        if self._search is not None:
            held.update(found[1] for found in self._search.finditer(shape))
        worth_trying = list(self._always)
        for literal in {shorter for longest in held for shorter in self._shorter[longest]}:
            worth_trying += self._patterns_by_literal[literal]
        if not worth_trying:
            return ()
        chosen: dict[int, set[int]] = defaultdict(set)
        for number, pattern in worth_trying:
            chosen[number].add(id(pattern))
        return tuple(
            replace(rule, patterns=tuple(p for p in rule.patterns if id(p) in chosen[number]))
            for number, rule in enumerate(self._rules)
            if number in chosen
        )


_Tree = Mapping[str, "_Tree"]


def _tree(words: Iterable[str]) -> _Tree:
    root: dict[str, dict[str, object]] = {}
    for word in words:
        branch: dict[str, dict[str, object]] = root
        for letter in word:
            branch = branch.setdefault(letter, {})  # type: ignore[assignment]
        branch[_END] = {}
    return root  # type: ignore[return-value]


def _expression(tree: _Tree) -> str:
    branches = [
        f"{re.escape(letter)}{_expression(branch)}" for letter, branch in tree.items() if letter
    ]
    if not branches:
        return ""
    choice = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{choice})?" if _END in tree else choice

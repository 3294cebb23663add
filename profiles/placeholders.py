"""Names in braces that the arguments and the environment of a command may hold.

``{rank}`` becomes the global rank of the process, ``{{`` a brace. Anything else in braces is
refused when the task is read, so that no process starts with a name left in its arguments.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

PLACEHOLDERS: Final = (
    "task_dir", "rank", "generation", "workers", "tp", "pp", "dp", "micro_batches",
)  # fmt: skip
"""What is known of a rank and of its generation's plan.

``micro_batches`` is what one replica computes per iteration: those of the task over ``dp``.
"""

_PART: Final = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
_BRACES: Final = ("{{", "}}")


def names_in(text: str) -> list[str]:
    """Return the placeholders of ``text``, in their order.

    Raises:
        ValueError: A brace is alone, or a name is unknown; the text says how to mend it.
    """
    names = []
    for part in _PART.finditer(text):
        name = part["name"]
        if name is None:
            if part[0] not in _BRACES:
                raise ValueError(f"has a single {part[0]!r}; write {part[0] * 2} for a brace")
        elif name in PLACEHOLDERS:
            names.append(name)
        else:
            raise ValueError(_unknown(part[0], name))
    return names


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with its placeholders replaced.

    Args:
        text: A text that ``names_in`` accepts.
        values: A value for each of ``PLACEHOLDERS``.
    """
    return _PART.sub(
        lambda part: part[0][0] if part["name"] is None else values[part["name"]], text
    )


def _unknown(written: str, name: str) -> str:
    nearest = get_close_matches(name, PLACEHOLDERS, n=1)
    known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
    mend = f"did you mean {{{nearest[0]}}}?" if nearest else f"known: {known}"
    shown = written if len(written) <= 40 else f"{written[:40]}..."
    return f"{shown} is no name that is filled in; {mend} Write {{{{ for a brace"

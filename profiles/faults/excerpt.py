"""A verdict on one excerpt: a few lines that belong together."""

import functools
from itertools import islice
from typing import Final

from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.sign import Sign
from profiles.faults.tracebacks import OpenTraceback, begins_traceback
from profiles.faults.verdict import Verdict, decide

_MOST_TRACEBACKS: Final = 50
"""Of one text. Of signs that weigh the same the earliest decides."""
_SHORT: Final = 4096
"""Characters of a text whose verdict is kept."""


def classify_excerpt(text: str | bytes, *, catalogue: Catalogue | None = None) -> Verdict:
    """Name the one status that an operator should act on.

    Args:
        text: Lines that belong together, at most some thousands. Any bytes will do.
        catalogue: What is known; the package's own by default.
    """
    if catalogue is not None:
        return decide(signs_of(text, catalogue), catalogue)
    return _remembered(text) if len(text) <= _SHORT else _by_default_catalogue(text)


def _by_default_catalogue(text: str | bytes) -> Verdict:
    known = default_catalogue()
    return decide(signs_of(text, known), known)


# A fault that breaks a thousand ranks has one text, and the controller asks for each rank.
_remembered = functools.lru_cache(maxsize=256)(_by_default_catalogue)


def signs_of(text: str | bytes, catalogue: Catalogue) -> list[Sign]:
    """Return every sign in ``text``, in the order of its lines."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    matcher = Matcher(catalogue)
    lines = content.split(b"\n")
    signs = [
        sign for number, line in enumerate(lines, start=1) for sign in matcher.read(number, line)
    ]
    for header in islice(filter(begins_traceback, signs), _MOST_TRACEBACKS):
        OpenTraceback(header).read(1, lines)
    return signs

"""A verdict on one excerpt: a few lines that belong together."""

from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.sign import Sign
from profiles.faults.verdict import Verdict, decide


def classify_excerpt(text: str | bytes, *, catalogue: Catalogue | None = None) -> Verdict:
    """Name the one status that an operator should act on.

    Args:
        text: Lines that belong together, at most some thousands. Any bytes will do.
        catalogue: What is known; the package's own by default.
    """
    known = catalogue or default_catalogue()
    return decide(signs_of(text, known), known)


def signs_of(text: str | bytes, catalogue: Catalogue) -> list[Sign]:
    """Return every sign in ``text``, in the order of its lines."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    matcher = Matcher(catalogue)
    return [
        sign
        for number, line in enumerate(content.split(b"\n"), start=1)
        for sign in matcher.read(number, line)
    ]

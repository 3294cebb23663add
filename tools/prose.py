"""Counts sentences that are hard to read, in docstrings, comments, announcements and pages.

    python tools/prose.py                       a table: each package and each kind of text
    python tools/prose.py --list controller     the hard sentences of a folder, with their places
    python tools/prose.py --banned controller   its sentences with a banned phrase
    python tools/prose.py --sample 10 --seed 1  ten random docstrings, announcements and paragraphs

A sentence is *hard* if it holds two or more words of ``HARD_WORDS``, which stand for something
unnamed. It is *long* if it has more than 25 words. House rule: under 0.5 % of the sentences in
docstrings are hard.

A sentence is *banned* if it holds a phrase of ``BANNED``: a metaphor or a filler that the house
guide forbids. House rule: docstrings and announcements of the packages have none.

Announcements are the literal texts that the code logs, prints, raises or shows to operators: every
string with a space in it that is no docstring.
"""

import argparse
import ast
import io
import json
import random
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MAX_HARD_PERCENT: Final = 0.5
MAX_WORDS: Final = 25
_NUM_HARD_WORDS: Final = 2
_MIN_WORDS: Final = 3

HARD_WORDS: Final = re.compile(
    r"\b(?:what(?!-if)|who|whom|whose|whoever|whatever|those of|the ones?|the others|of which)\b",
    re.IGNORECASE,
)
BANNED: Final = re.compile(
    r"\b(?:"
    r"tells?|telling|told|hears?|hearing|heard"  # programs send, report, receive or show
    r"|go(?:es)? on|going on|went on|gone on"  # continue
    r"|by now|at the most|in vain|for good(?! (?:reason|measure))"
    r"|(?:is|are|be|was|were|not|never) of (?:no |any |some |little )?(?:other )?(?:use|consequence)"
    r"|witness\w*|charter\w*|foresight|speaks? (?:for|against|of)|born"
    r")\b",
    re.IGNORECASE,
)
"""Phrases that no sentence may hold. Code in backticks does not count: ``file.tell()`` is fine."""
_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?])[\"')]*\s+(?=[A-Z`*\"'(])|\n\s*\n"
    r"|\n(?=\s*\w+: )"  # the next attribute or argument of a docstring
)
_CODE_OR_ADDRESS: Final = re.compile(r"`+[^`]*`+|\]\([^)]*\)")
_KINDS: Final = ("docstring", "comment", "announcement", "page")
_PACKAGES: Final = ("console", "controller", "nodeagent", "profiles")


@dataclass(frozen=True, slots=True)
class Text:
    """One piece of prose.

    Attributes:
        kind: ``docstring``, ``comment``, ``announcement`` or ``page``.
        file: Path, relative to the repository.
        line: First line, from 1.
        text: The words, without markup of the language around them.
    """

    kind: str
    file: str
    line: int
    text: str

    @property
    def sentences(self) -> list[str]:
        """The sentences, each on one line."""
        found = (" ".join(each.split()) for each in _SENTENCE_END.split(self.text))
        return [each for each in found if len(each.split()) >= _MIN_WORDS]


def is_hard(sentence: str) -> bool:
    """Return whether a sentence holds two or more words that stand for something unnamed."""
    return len(HARD_WORDS.findall(_CODE_OR_ADDRESS.sub(" ", sentence))) >= _NUM_HARD_WORDS


def is_banned(sentence: str) -> bool:
    """Return whether a sentence holds a phrase of ``BANNED``."""
    return BANNED.search(_CODE_OR_ADDRESS.sub(" ", sentence)) is not None


def is_long(sentence: str) -> bool:
    """Return whether a sentence has more than ``MAX_WORDS`` words."""
    return len(sentence.split()) > MAX_WORDS


def texts_of_python(file: str, source: str) -> Iterator[Text]:
    """Return the docstrings, comments and announcements of a Python module.

    Raises:
        SyntaxError: ``source`` is no Python.
    """
    tree = ast.parse(source, file)
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.add(id(statement.value))
                if isinstance(statement.value.value, str):
                    yield Text(
                        "docstring", file, statement.lineno, _without_code(statement.value.value)
                    )
    yield from _announcements(tree, file, docstrings)
    yield from _comments(file, source)


def texts_of_page(file: str, source: str) -> Iterator[Text]:
    """Return the paragraphs of a page in Markdown, without code, tables and headings."""
    is_code, paragraph, begin = False, list[str](), 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_code = is_code != is_fence
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        is_prose = not (is_code or is_fence) and line.strip() and not re.match(r"    |[|#<]", line)
        if paragraph and (not is_prose or item):
            yield Text("page", file, begin, "\n".join(paragraph))
            paragraph = []
        if is_prose:
            begin = begin if paragraph else number
            paragraph.append(line[item.end() :] if item else line)


def _announcements(tree: ast.AST, file: str, docstrings: set[int]) -> Iterator[Text]:
    inner = set[int]()
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            inner.update(id(each) for each in ast.walk(node))
            text = "".join(
                str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in docstrings and " " in text.strip():
            yield Text("announcement", file, node.lineno, text)


def _comments(file: str, source: str) -> Iterator[Text]:
    words, begin, newest = list[str](), 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if words and number != newest + 1:
            yield Text("comment", file, begin, "\n".join(words))
            words = []
        begin, newest = begin if words else number, number
        words.append(token.string.removeprefix("#").strip())
    if words:
        yield Text("comment", file, begin, "\n".join(words))


def _without_code(docstring: str) -> str:
    """Drop what is indented as code or a table, and empty lines that stand between."""
    lines = docstring.expandtabs().splitlines()
    margin = min((len(x) - len(x.lstrip()) for x in lines[1:] if x.strip()), default=0)
    kept = [
        "" if i and x[margin:].startswith("    ") and _is_figure(lines, i, margin) else x
        for i, x in enumerate(lines)
    ]
    return "\n".join(kept)


def _is_figure(lines: list[str], number: int, margin: int) -> bool:
    """Return whether an indented line belongs to a block of its own: a figure or code."""
    while number > 0 and lines[number].strip():
        if len(lines[number]) - len(lines[number].lstrip()) <= margin:
            return False
        number -= 1
    return True


def read_texts(folders: list[str]) -> Iterator[Text]:
    """Return all prose of the files that git tracks in these folders.

    Of all where none is given.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for file in listed.stdout.splitlines():
        path = ROOT / file
        if not path.exists():
            continue
        if path.suffix == ".py":
            yield from texts_of_python(file, path.read_text())
        elif path.suffix == ".md":
            yield from texts_of_page(file, path.read_text())


@dataclass(slots=True)
class Count:
    """Sentences of one kind in one package."""

    sentences: int = 0
    hard: int = 0
    long: int = 0
    banned: int = 0

    @property
    def hard_percent(self) -> float:
        """Share of hard sentences, in percent."""
        return 100 * self.hard / max(1, self.sentences)


def count(texts: list[Text]) -> dict[tuple[str, str], Count]:
    """Count sentences by package and kind."""
    counts: dict[tuple[str, str], Count] = defaultdict(Count)
    for text in texts:
        package = text.file.split("/")[0] if "/" in text.file else "."
        for sentence in text.sentences:
            one = counts[package, text.kind]
            one.sentences += 1
            one.hard += is_hard(sentence)
            one.long += is_long(sentence)
            one.banned += is_banned(sentence)
    return dict(counts)


def _print_table(counts: dict[tuple[str, str], Count]) -> None:
    print(
        f"{'package':<12}{'kind':<14}{'sentences':>10}{'hard':>7}{'hard %':>8}{'long %':>8}"
        f"{'banned':>8}"
    )
    for (package, kind), one in sorted(counts.items()):
        long_percent = 100 * one.long / max(1, one.sentences)
        print(
            f"{package:<12}{kind:<14}{one.sentences:>10}{one.hard:>7}{one.hard_percent:>8.2f}"
            f"{long_percent:>8.1f}{one.banned:>8}"
        )


def _print_sample(texts: list[Text], size: int, seed: int) -> None:
    dice = random.Random(seed)
    for kind in ("docstring", "announcement", "page"):
        choice = [each for each in texts if each.kind == kind and each.sentences]
        for text in dice.sample(choice, min(size, len(choice))):
            print(f"{kind} {text.file}:{text.line}\n    " + "\n    ".join(text.sentences))


def main() -> int:
    """Run the command; the exit status is 1 where ``--check`` finds too many hard sentences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", help="folders or files; all where none is given")
    parser.add_argument("--list", action="store_true", help="print each hard sentence")
    parser.add_argument("--long", action="store_true", help="with --list: long sentences too")
    parser.add_argument(
        "--banned", action="store_true", help="print each sentence with a banned phrase"
    )
    parser.add_argument("--kind", choices=_KINDS, help="only this kind of text")
    parser.add_argument("--sample", type=int, metavar="N", help="print N random texts of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail if {MAX_HARD_PERCENT} %% or more of a package's docstring sentences are hard,"
        " or if any text of console, controller, nodeagent or profiles holds a banned phrase",
    )
    args = parser.parse_args()
    texts = [x for x in read_texts(args.folders) if args.kind in {None, x.kind}]
    if args.sample:
        _print_sample(texts, args.sample, args.seed)
        return 0
    if args.list or args.banned:
        for text in texts:
            for sentence in text.sentences:
                is_listed = args.list and (is_hard(sentence) or (args.long and is_long(sentence)))
                if is_listed or (args.banned and is_banned(sentence)):
                    print(f"{text.file}:{text.line}: {text.kind}: {sentence}")
        return 0
    counts = count(texts)
    if args.json:
        rows = [{"package": p, "kind": k, **asdict(one)} for (p, k), one in sorted(counts.items())]
        print(json.dumps(rows, indent=1))
    else:
        _print_table(counts)
    too_hard = [
        f"{package}: {one.hard_percent:.2f} % of the sentences in docstrings are hard"
        for (package, kind), one in sorted(counts.items())
        if kind == "docstring" and one.hard_percent >= MAX_HARD_PERCENT
    ]
    banned = [
        f"{package}: {one.banned} banned phrases in {kind}s: see --banned {package}"
        for (package, kind), one in sorted(counts.items())
        if package in _PACKAGES and one.banned
    ]
    if args.check and (too_hard or banned):
        print("\n".join([*too_hard, *banned]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

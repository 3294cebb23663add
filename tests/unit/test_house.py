"""The shape of the house: folders, modules, and how hard the prose is to read."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import prose
import pytest

REPOSITORY: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("console", "controller", "nodeagent", "profiles", "benchmarks")
_MIN_COMMENTS: Final = 3.0
_SHARED_NAMES: Final = ("__init__.py", "__main__.py", "cli.py")
_COMMENTED: Final = (
    "controller/core/machine.py",
    "controller/core/rules/packing",
    "controller/core/rules/planner",
    "controller/core/rules/regroup",
    "controller/core/sweeps.py",
    "nodeagent/rank/iteration/accumulation.py",
    "nodeagent/rank/iteration/accumulation.py",
    "nodeagent/rank/iteration/iteration_phases.py",
    "nodeagent/rank/iteration/ledger.py",
    "nodeagent/rank/iteration/reduction.py",
)


def _modules() -> Iterator[Path]:
    for package in _PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            if ".venv" not in path.as_posix():
                yield path.relative_to(REPOSITORY)


def test_no_module_is_called_like_its_folder() -> None:
    assert [str(path) for path in _modules() if path.stem == path.parent.name] == []


def test_no_two_modules_have_one_name() -> None:
    places: dict[str, list[Path]] = {}
    for path in _modules():
        if path.name not in _SHARED_NAMES:
            places.setdefault(path.name, []).append(path)
    assert [sorted(map(str, paths)) for paths in places.values() if len(paths) > 1] == []


def test_every_folder_says_what_it_is_for() -> None:
    folders = {path.parent for path in _modules()} - {Path("benchmarks")}
    silent = []
    for folder in sorted(folders):
        init = REPOSITORY / folder / "__init__.py"
        if not init.exists() or not ast.get_docstring(ast.parse(init.read_text())):
            silent.append(str(folder))
    assert silent == []


def test_every_folder_says_where_to_begin() -> None:
    folders = {path.parent for path in _modules()} - {Path("benchmarks")}
    inits = {folder: (REPOSITORY / folder / "__init__.py").read_text() for folder in folders}
    begins = re.compile(r"Begin\s+with\s+``|Read\s+in\s+this\s+order")
    assert [str(folder) for folder, text in inits.items() if not begins.search(text)] == []


def test_a_guide_that_names_modules_names_all() -> None:
    incomplete = []
    for folder in sorted({path.parent for path in _modules()} - {Path("benchmarks")}):
        guide = ast.get_docstring(ast.parse((REPOSITORY / folder / "__init__.py").read_text()))
        has_list = re.search(r"^``\w+/?``(, ``\w+/?``)*  ", guide or "", re.MULTILINE)
        named = set(re.findall(r"``(\w+)/?``", guide or "")) if has_list else set()
        rooms = {path.stem for path in (REPOSITORY / folder).glob("*.py")}
        rooms |= {path.parent.name for path in (REPOSITORY / folder).glob("*/__init__.py")}
        if named & rooms and (missing := rooms - named - {"__init__", "__main__"}):
            incomplete.append(f"{folder}: {', '.join(sorted(missing))}")
    assert incomplete == []


@pytest.mark.parametrize("place", _COMMENTED)
def test_hard_algorithms_have_comments_that_say_why(place: str) -> None:
    path = REPOSITORY / place
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    assert files
    num_lines, num_comments = 0, 0
    for file in files:
        source = file.read_text()
        num_lines += len(source.splitlines())
        num_comments += sum(
            token.type == tokenize.COMMENT and not token.string.startswith(("# fmt", "# noqa"))
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
        )
    assert 100 * num_comments / num_lines >= _MIN_COMMENTS


@pytest.mark.parametrize(
    ("sentence", "is_hard"),
    [
        ("Whoever is told of this knows what to do.", True),
        ("What a rank waits for is named by those of its peers.", True),
        ("The agent reports what it has seen.", False),
        ("The rank waits for the collective.", False),
    ],
)
def test_a_sentence_is_hard_with_two_words_for_something_unnamed(
    sentence: str, is_hard: bool
) -> None:
    assert prose.is_hard(sentence) is is_hard


@pytest.mark.parametrize(
    ("sentence", "is_banned"),
    [
        ("The agent is told at its start.", True),
        ("Nothing was heard for too long.", True),
        ("Training goes on meanwhile.", True),
        ("The iteration should have ended by now.", True),
        ("A thread may block for good.", True),
        ("It is of no other consequence.", True),
        ("Lines that speak for the verdict.", True),
        ("A size is foretold by its neighbours.", False),
        ("A file is cut at ``file.tell()`` bytes.", False),
        ("The order of use is kept.", False),
        ("It stays for good reason.", False),
        ("It goes once to each node.", False),
    ],
)
def test_a_sentence_is_banned_with_a_metaphor_or_a_filler(sentence: str, is_banned: bool) -> None:
    assert prose.is_banned(sentence) is is_banned


def test_docstrings_comments_and_announcements_are_told_apart() -> None:
    source = '"""Names the module."""\n# Why it is so.\nLOG.info("rank lost: rank=%s", 1)\n'
    assert [(text.kind, text.text) for text in prose.texts_of_python("a.py", source)] == [
        ("docstring", "Names the module."),
        ("announcement", "rank lost: rank=%s"),
        ("comment", "Why it is so."),
    ]


def test_code_and_tables_of_pages_are_no_prose() -> None:
    page = "# A title\n\nThe first paragraph.\n\n    code of the page\n\n| a | b |\n\n- one item\n"
    texts = [text.text for text in prose.texts_of_page("a.md", page)]
    assert texts == ["The first paragraph.", "one item"]

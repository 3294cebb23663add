"""Pages name files, functions and anchors that exist, and have lines that fit a terminal."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
_PAGES: Final = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"))
)
_MAX_COLUMNS: Final = 120
_FILE: Final = re.compile(
    r"`((?:console|controller|nodeagent|profiles|benchmarks|tests|tools|examples|docs)/[\w./-]+\.\w+)`"
)
_FUNCTION: Final = re.compile(r"`(\w[\w/]*\.py):([\w.]+)`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def _lines_of_prose(page: str) -> Iterator[tuple[int, str]]:
    """Return the lines outside generated sections, tables, figures and long links."""
    is_made = False
    for number, line in enumerate((REPOSITORY / page).read_text().splitlines(), 1):
        is_made = (is_made or "made by benchmarks" in line) and ": end -->" not in line
        if not is_made and not line.startswith(("|", "    ", "![")):
            yield number, line


@pytest.mark.parametrize("page", _PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    named = [name for name in _FILE.findall(text) if not re.search(r"\b[A-Z]{3,}\b", name)]
    missing = [name for name in named if not (REPOSITORY / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", _PAGES)
def test_functions_that_a_page_names_exist(page: str) -> None:
    for file, name in _FUNCTION.findall((REPOSITORY / page).read_text()):
        assert name in set(_definitions((REPOSITORY / file).read_text())), f"{file}: {name}"


def _definitions(source: str) -> Iterator[str]:
    """Return names of functions and classes, and of methods as ``Class.method``."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("page", _PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    folder = (REPOSITORY / page).parent
    for target in _LINK.findall((REPOSITORY / page).read_text()):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        path = folder / file if file else REPOSITORY / page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in set(_anchors(path.read_text())), target


def _anchors(page: str) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", _PAGES)
def test_lines_of_a_page_fit_a_terminal(page: str) -> None:
    long = [number for number, line in _lines_of_prose(page) if len(line) > _MAX_COLUMNS]
    assert long == []

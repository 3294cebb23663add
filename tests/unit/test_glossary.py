"""No name in the code uses a word that the glossary has retired."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
_PAGE: Final = REPOSITORY / "docs" / "glossary.md"
_PACKAGES: Final = (
    "console",
    "controller",
    "nodeagent",
    "profiles",
    "benchmarks",
    "tools",
    "tests",
)
_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_KEY: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")
_VALUE: Final = re.compile(r"[a-z]+(?:[-_ ][a-z]+)*")
_OPTION: Final = re.compile(r"--[a-z]+(?:-[a-z]+)*")


def retired_words(page: str) -> frozenset[str]:
    """Return the words in the first column of the table of retired words."""
    _, _, table = page.partition("## Retired words")
    return frozenset(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE))


def names_of_module(source: str) -> Iterator[tuple[int, str]]:
    """Return line and name of all that has a name: classes, variables, options, keys, values."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Assign(value=ast.Constant(value=str() as text)) if _VALUE.fullmatch(text):
                yield node.lineno, text  # a member of an enumeration
            case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
                for each in ast.walk(values):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield node.lineno, each.value
            case ast.Dict():
                for key in node.keys:
                    value = key.value if isinstance(key, ast.Constant) else None
                    if isinstance(value, str) and _KEY.fullmatch(value):
                        yield node.lineno, value
            case ast.Constant(value=str() as text) if _OPTION.fullmatch(text):
                yield node.lineno, text


def keys_of_toml(value: object) -> Iterator[str]:
    """Return all keys of a parsed TOML file."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from keys_of_toml(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys_of_toml(each)


def words_of(name: str) -> set[str]:
    """Return the words that a name is made of, in lower case and in the singular."""
    words = {word.lower() for word in _WORDS.findall(name)}
    return words | {word.removesuffix("s") for word in words}


def _offences(package: str, retired: frozenset[str]) -> Iterator[str]:
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        place = path.relative_to(REPOSITORY)
        parts = [name for name in (*place.parts[:-1], path.stem) if words_of(name) & retired]
        yield from (f"{place}: module {name}" for name in parts)
        for line, name in names_of_module(path.read_text()):
            if words_of(name) & retired:
                yield f"{place}:{line}: {name}"
    for path in sorted((REPOSITORY / package).rglob("*.toml")):
        for key in keys_of_toml(tomllib.loads(path.read_text())):
            if words_of(key) & retired:
                yield f"{path.relative_to(REPOSITORY)}: key {key}"


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_name_uses_a_retired_word(package: str) -> None:
    assert list(_offences(package, retired_words(_PAGE.read_text()))) == []


def test_the_page_lists_retired_words() -> None:
    assert {"charter", "foresight", "legacy"} <= retired_words(_PAGE.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "class Foresight: ...",
        "def read_foresight(): ...",
        "def read(foresight): ...",
        "class A:\n    num_foresight: int = 0",
        "foresights = 1",
        "class A(StrEnum):\n    KIND = 'foresight'",
        "Kind = Literal['none', 'foresight']",
        "x = {'foresight_s': 1}",
        "parser.add_argument('--no-foresight')",
    ],
)
def test_each_kind_of_name_is_found(source: str) -> None:
    found = [name for _, name in names_of_module(source) if "foresight" in words_of(name)]
    assert len(found) == 1


def test_words_of_names_are_told_apart() -> None:
    assert words_of("NVLinkHTTPErrors") == {"nv", "link", "http", "errors", "error"}
    assert "ear" not in words_of("search_gear")
    assert words_of("--lose-node") == {"lose", "node"}


def test_keys_of_tables_in_lists_are_found() -> None:
    assert list(keys_of_toml({"a": [{"b": {"c": 1}}]})) == ["a", "b", "c"]


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for package in ("console", "controller", "nodeagent", "profiles"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                for name in _defined_types(node):
                    places.setdefault(name, []).append(str(path.relative_to(REPOSITORY)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def _defined_types(node: ast.stmt) -> list[str]:
    """Return the names of public classes and type aliases that a statement defines."""
    match node:
        case ast.ClassDef(name=name):
            names = [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            names = [name]
        case _:
            names = []
    is_type_variable = isinstance(node, ast.Assign) and "TypeVar(" in ast.unparse(node.value)
    return [name for name in names if re.fullmatch(r"[A-Z][a-z]\w*", name) and not is_type_variable]

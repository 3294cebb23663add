"""A TOML file together with the line of each of its keys.

``tomllib`` reads the values. It keeps no places, so the lines come from tree-sitter's grammar of
TOML, which reads the same text a second time.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

from profiles.json_faults import digits_fault
from profiles.key_mistakes import Location

_MOST_BYTES: Final = 16 * 1024 * 1024
_AT_LINE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_KEYS: Final = frozenset({"bare_key", "quoted_key", "dotted_key"})
_FIRST_WORD: Final = re.compile(r"\w+")


class TomlError(Exception):
    """A file is no TOML. The text is one line; ``line`` is 0 where no line is at fault."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """The values of a TOML file, and where its keys are.

    Attributes:
        path: The file.
        values: What it says.
        lines: The line of each key and each table, by its location.
    """

    path: Path
    values: dict[str, Any]
    lines: dict[Location, int]

    def line_of(self, location: Location, text: str = "") -> int:
        """Return the line of a key, or of the table that should have it.

        Args:
            location: The keys that lead there; entries of arrays are counted from 0.
            text: What is wrong. If it begins with a key of the table at ``location``, the line is
                that key's.
        """
        if (word := _FIRST_WORD.match(text)) and (*location, word[0]) in self.lines:
            return self.lines[*location, word[0]]
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def place_of(self, location: Location) -> str:
        """Return file and line of a key, as mistakes in other places name it."""
        return f"{self.path}:{self.line_of(location)}"


def read_toml(path: Path) -> TomlDocument:
    """Read a TOML file.

    Raises:
        TomlError: It can't be read, or is not TOML.
    """
    return toml_of(path, _content_of(path))


def toml_of(path: Path, content: bytes) -> TomlDocument:
    """Read the content of a TOML file; ``path`` is what mistakes name.

    Raises:
        TomlError: It is not TOML.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise TomlError(
            f"is not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8", line
        ) from error
    try:
        values = tomllib.loads(text)
    except RecursionError as error:
        raise TomlError("tables or lists in it are nested too deep") from error
    except ValueError as error:
        raise _syntax_error(text, str(error)) from error
    lines = dict(_lines(Parser(Language(tree_sitter_toml.language())).parse(content).root_node))
    return TomlDocument(path, values, lines)


def _content_of(path: Path) -> bytes:
    if "\0" in str(path):
        raise TomlError("no file's name has a NUL in it")
    try:
        if path.exists() and not path.is_file():
            raise TomlError("is not a file; name a TOML file")
        if path.stat().st_size > _MOST_BYTES:
            raise TomlError(f"has more than {_MOST_BYTES} bytes; name a TOML file")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TomlError("there is no such file; check the path") from error
    except OSError as error:
        raise TomlError((error.strerror or type(error).__name__).lower()) from error


def _syntax_error(text: str, reason: str) -> TomlError:
    if digits := digits_fault(text):
        number, _, words = digits.removeprefix("line ").partition(": ")
        return TomlError(f"not valid TOML: {words}", int(number))
    found = _AT_LINE.search(reason)
    if found is None:
        return TomlError(f"not valid TOML: {reason}")
    line = int(found[1]) if found[1] else text.rstrip("\n").count("\n") + 1
    words = reason[: found.start()]
    return TomlError(f"not valid TOML: {words[:1].lower()}{words[1:]}", line)


def _lines(document: Node) -> Iterator[tuple[Location, int]]:
    """Yield the line of each key and each table."""
    num_tables: Counter[Location] = Counter()

    def resolved(names: Location) -> Location:
        """Return the location of a table: of each array of tables in it the newest entry counts."""
        location: Location = ()
        for name in names:
            location = (*location, name)
            if num_tables[location]:
                location = (*location, num_tables[location] - 1)
        return location

    for node in document.children:
        if node.type == "pair":
            yield from _pair(node, ())
        elif node.type in {"table", "table_array_element"}:
            names = _names(next(child for child in node.children if child.type in _KEYS))
            if node.type == "table":
                location = resolved(names)
            else:
                array = (*resolved(names[:-1]), names[-1])
                if not num_tables[array]:
                    yield array, _line(node)
                location = (*array, num_tables[array])
                num_tables[array] += 1
            yield location, _line(node)
            for child in node.children:
                if child.type == "pair":
                    yield from _pair(child, location)


def _pair(pair: Node, parent: Location) -> Iterator[tuple[Location, int]]:
    key, _, value = (child for child in pair.children if child.type != "comment")
    location = parent
    for name in _names(key):
        location = (*location, name)
        yield location, _line(key)
    yield from _value(value, location)


def _value(value: Node, location: Location) -> Iterator[tuple[Location, int]]:
    if value.type == "inline_table":
        for child in value.children:
            if child.type == "pair":
                yield from _pair(child, location)
    elif value.type == "array":
        entries = [child for child in value.named_children if child.type != "comment"]
        for number, entry in enumerate(entries):
            yield (*location, number), _line(entry)
            yield from _value(entry, (*location, number))


def _names(key: Node) -> Location:
    if key.type == "dotted_key":
        return tuple(
            name for child in key.children if child.type in _KEYS for name in _names(child)
        )
    text = (key.text or b"").decode()
    # A quoted key may have escapes in it; TOML itself says what it stands for.
    return (next(iter(tomllib.loads(f"{text} = 0"))),)


def _line(node: Node) -> int:
    return node.start_point.row + 1

"""The mistakes of a cluster file and its includes. All are collected before anything is refused."""

from dataclasses import dataclass, field
from pathlib import Path

from controller.clusterfile.toml_document import TomlDocument
from profiles.key_mistakes import KeyMistake, Location
from profiles.records import on_one_line


@dataclass(frozen=True, slots=True, order=True)
class FileMistake:
    """One mistake: its file, its line (0 if it is the file itself), what is wrong, and the mend."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        """Return the mistake in one line."""
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return on_one_line(f"{place}: {self.text}")


class ClusterFileError(Exception):
    """A cluster file can't be used. The text has one line for each of its mistakes."""

    def __init__(self, mistakes: list[FileMistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


@dataclass(slots=True)
class Mistakes:
    """Collects the mistakes of all files."""

    found: list[FileMistake] = field(default_factory=list)

    def add(self, document: TomlDocument, location: Location, text: str) -> None:
        """Add a mistake at a key of a document."""
        self.found.append(FileMistake(document.path, document.line_of(location), text))

    def add_all(
        self, document: TomlDocument, location: Location, mistakes: list[KeyMistake], subject: str
    ) -> None:
        """Add the mistakes of one table.

        Args:
            document: Where the table is.
            location: The table.
            mistakes: Their locations are relative to the table.
            subject: How operators call the table.
        """
        for mistake in mistakes:
            line = document.line_of((*location, *mistake.location), mistake.text)
            self.found.append(FileMistake(document.path, line, f"{subject}: {mistake.text}"))

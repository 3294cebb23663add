"""What the controller says while drills run: the only history that the matrix reads."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from controller.core.instructions import Announce
from controller.drill_matrix.row import Notice
from controller.server.announcements import AnnouncementObserver

DRILL: Final = "drill"
_NOTICES: Final = frozenset({"straggler", "takeover", "unreachable"})


@dataclass(frozen=True, slots=True)
class Said:
    """An announcement, and when it was made."""

    at: float
    announcement: Announce


class DrillRecorder(AnnouncementObserver):
    """Keeps everything but the traces of iterations and ranks."""

    def __init__(self) -> None:
        self._said: list[Said] = []

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        if announcement.level != "trace":
            self._said.append(Said(at, announcement))

    def mark(self) -> int:
        """Return a mark of now."""
        return len(self._said)

    def since(self, mark: int) -> list[Said]:
        """Return what was said since ``mark``."""
        return self._said[mark:]

    def struck_at(self, mark: int) -> float | None:
        """Return when the first drill since ``mark`` was carried out; None if it was not yet."""
        return next((said.at for said in self.since(mark) if said.announcement.kind == DRILL), None)

    def notices(self, mark: int, struck_at: float) -> list[Notice]:
        """Return what operators were told without an incident since the drill."""
        return [
            _notice(said.announcement, said.at - struck_at)
            for said in self.since(mark)
            if said.announcement.kind in _NOTICES and said.at >= struck_at
        ]

    def notes(self, mark: int) -> tuple[str, ...]:
        """Return what was said about drills themselves since ``mark``."""
        return tuple(
            said.announcement.text for said in self.since(mark) if said.announcement.source == DRILL
        )


def _notice(announcement: Announce, after_s: float) -> Notice:
    facts = dict(announcement.facts)
    task, node, rank = facts.get("task"), facts.get("node"), facts.get("rank")
    return Notice(
        kind=announcement.kind,
        after_s=after_s,
        task=str(task) if task is not None else announcement.source,
        node=str(node) if node is not None else announcement.source,
        global_rank=rank if isinstance(rank, int) else None,
    )

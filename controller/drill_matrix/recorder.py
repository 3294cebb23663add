"""What the controller says while drills run: the only history that the matrix reads."""

from dataclasses import dataclass
from typing import Final

from controller.core.instructions import Announce
from controller.drill_matrix.row import Notice

DRILL: Final = "drill"
_NOTICES: Final = frozenset({"straggler", "takeover", "unreachable"})


@dataclass(frozen=True, slots=True)
class RecordedAnnouncement:
    """An announcement, and when it was made."""

    at: float
    announcement: Announce


class DrillRecorder:
    """Keeps everything but the traces of iterations and ranks."""

    def __init__(self) -> None:
        self._announcements: list[RecordedAnnouncement] = []

    def observe(self, at: float, announcement: Announce) -> None:
        """Take an announcement."""
        if announcement.level != "trace":
            self._announcements.append(RecordedAnnouncement(at, announcement))

    def mark(self) -> int:
        """Return a mark of now."""
        return len(self._announcements)

    def since(self, mark: int) -> list[RecordedAnnouncement]:
        """Return what was said since ``mark``."""
        return self._announcements[mark:]

    def carried_out_at(self, mark: int) -> float | None:
        """Return when the first drill since ``mark`` was carried out; None if it was not yet."""
        return next(
            (recorded.at for recorded in self.since(mark) if recorded.announcement.kind == DRILL),
            None,
        )

    def notices(self, mark: int, carried_out_at: float) -> list[Notice]:
        """Return what operators were told without an incident since the drill."""
        return [
            _notice(recorded.announcement, recorded.at - carried_out_at)
            for recorded in self.since(mark)
            if recorded.announcement.kind in _NOTICES and recorded.at >= carried_out_at
        ]

    def notes(self, mark: int) -> tuple[str, ...]:
        """Return what was said about drills themselves since ``mark``."""
        return tuple(
            recorded.announcement.text
            for recorded in self.since(mark)
            if recorded.announcement.source == DRILL
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

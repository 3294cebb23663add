"""Records the controller's announcements while drills run. The matrix reads no other history."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from controller.core.instructions import Announce
from controller.drill_matrix.row import Notice
from controller.server.announcements import AnnouncementObserver

DRILL: Final = "drill"
_NOTICES: Final = frozenset({"straggler", "takeover", "unreachable"})


@dataclass(frozen=True, slots=True)
class RecordedAnnouncement:
    """An announcement and its time."""

    at: float
    announcement: Announce


class DrillRecorder(AnnouncementObserver):
    """Records all announcements except traces of iterations and ranks."""

    def __init__(self) -> None:
        self._announcements: list[RecordedAnnouncement] = []

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        if announcement.level != "trace":
            self._announcements.append(RecordedAnnouncement(at, announcement))

    def mark(self) -> int:
        """Return a mark; the other methods read the announcements after it."""
        return len(self._announcements)

    def since(self, mark: int) -> list[RecordedAnnouncement]:
        """Return the announcements since ``mark``."""
        return self._announcements[mark:]

    def carried_out_at(self, mark: int) -> float | None:
        """Return when the first drill since ``mark`` was carried out; None if none was."""
        return next(
            (recorded.at for recorded in self.since(mark) if recorded.announcement.kind == DRILL),
            None,
        )

    def notices(self, mark: int, carried_out_at: float) -> list[Notice]:
        """Return the notices to operators (announcements without an incident) since the drill."""
        return [
            _notice(recorded.announcement, recorded.at - carried_out_at)
            for recorded in self.since(mark)
            if recorded.announcement.kind in _NOTICES and recorded.at >= carried_out_at
        ]

    def notes(self, mark: int) -> tuple[str, ...]:
        """Return the announcements about drills themselves since ``mark``."""
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

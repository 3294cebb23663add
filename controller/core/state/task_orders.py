"""What operators have ordered for a task, beside what the cluster file says.

Orders hold until they are taken back. An ordered setting also ends when the file itself gets
another value for it.
"""

from dataclasses import dataclass, field, replace

from controller.core.specs import TaskLimits


@dataclass(frozen=True, slots=True)
class OrderMark:
    """Who has ordered something, and when, in seconds since the start of the run."""

    actor: str
    at: float


@dataclass(slots=True)
class TaskOrders:
    """The orders for one task."""

    submitted: OrderMark | None = None
    """It came by a request, so no cluster file has to name it."""
    stopped: OrderMark | None = None
    """It is to stay stopped until it is started again."""
    finished: OrderMark | None = None
    """It was to end before its last iteration."""
    is_archived: bool = False
    """Operators do not want to see it any more."""
    limits: TaskLimits | None = None
    """Its limits as ordered; None if no setting is."""
    file_limits: TaskLimits | None = None
    """What the file said when the first setting was ordered."""
    marks: dict[str, OrderMark] = field(default_factory=dict)
    """By setting of ``TaskLimits``, who has ordered it."""

    def submit(self, actor: str, at: float) -> None:
        """The task came by a request."""
        self.submitted = OrderMark(actor, at)

    def adopt(self) -> None:
        """The cluster file names the task, too: it belongs to the file from now on."""
        self.submitted = None

    def stop(self, actor: str, at: float) -> None:
        """The task is to stay stopped."""
        self.stopped = OrderMark(actor, at)

    def start(self) -> None:
        """The task may run."""
        self.stopped = None

    def finish(self, actor: str, at: float) -> None:
        """The task is to end, and not to start again."""
        self.finished = OrderMark(actor, at)

    def archive(self) -> None:
        """Nobody wants to see the task any more."""
        self.is_archived = True

    def limit(self, before: TaskLimits, after: TaskLimits, mark: OrderMark) -> None:
        """The limits are to be ``after``; a setting that is as in the file again is no order."""
        file = self.file_limits or before
        marks = dict(self.marks)
        for name in changed_settings(before, after):
            marks[name] = mark
        for name in set(marks).difference(changed_settings(file, after)):
            del marks[name]
        self.marks = marks
        self.limits, self.file_limits = (after, file) if marks else (None, None)

    def of_file(self, limits: TaskLimits) -> TaskLimits:
        """Return what the file says, of limits in which the orders hold."""
        if self.file_limits is None:
            return limits
        return replace(limits, **{name: getattr(self.file_limits, name) for name in self.marks})

    def over(self, file: TaskLimits) -> TaskLimits:
        """The file says this now: return the limits, in which the other orders hold."""
        if self.limits is None or self.file_limits is None:
            return file
        for name in set(self.marks).intersection(changed_settings(self.file_limits, file)):
            self.marks = {key: mark for key, mark in self.marks.items() if key != name}
        if not self.marks:
            self.limits = self.file_limits = None
            return file
        self.file_limits = file
        self.limits = replace(file, **{name: getattr(self.limits, name) for name in self.marks})
        return self.limits


def changed_settings(before: TaskLimits, after: TaskLimits) -> set[str]:
    """Return the names of the settings that differ."""
    return {name for name in TaskLimits.__slots__ if getattr(before, name) != getattr(after, name)}

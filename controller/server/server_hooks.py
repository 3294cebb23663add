"""The hooks by which the owner of a server, for instance a demo, extends it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from controller.api.views import DrillView
from controller.api.wire import SubmitTasks
from controller.background import Failure, in_background
from controller.core.instructions import AnswerRequest
from controller.core.specs import TaskSpec
from controller.ports import DrillGround
from controller.server.announcements import AnnouncementObserver
from controller.server.controller_config import ControllerConfig

T = TypeVar("T")


class SubmissionError(Exception):
    """A file can't be taken. The text has a line for each mistake."""


class ReadConfig(Protocol):
    """Reads the config of a controller anew."""

    def __call__(self, *, is_dry_run: bool) -> ControllerConfig:
        """Return it. A dry run keeps nothing.

        Raises:
            SubmissionError: The file has mistakes, or says what no running controller can take.
        """
        ...


async def read_safely(read: Callable[[], T]) -> T:
    """Return what a hook reads, in a thread of its own.

    Raises:
        SubmissionError: It can't be taken. A bug in reading is one more reason: it must not end the
            controller.
    """

    def tried() -> T | SubmissionError:
        try:
            return read()
        except SubmissionError as error:
            return error

    found = await in_background(tried)
    if isinstance(found, Failure):
        raise SubmissionError(f"it could not be read; please report this bug: {found.text}")
    if isinstance(found, SubmissionError):
        raise found
    return found


def _ignore(_: AnswerRequest) -> None:
    """Ignore an answer."""


@dataclass(frozen=True, slots=True)
class ServerHooks:
    """The hooks. Without any, a server has an API and an event log, and runs no drills.

    Attributes:
        observers: Get every announcement, after the event log.
        answered: Called with each answer of the core, before the API's client gets it.
        drills: Carries out drills; None means that they are refused.
        offered_drills: The drills that clients may ask for.
        read_tasks: Returns the tasks of a submitted file, in a thread of its own; None means that
            no task can be submitted. It raises ``SubmissionError``.
        read_config: Reads the config anew, in a thread of its own; None means that it can't change.
        may_shut_down: Whether a client may end the run; ``ControllerServer.is_closing`` shows it
            to the owner.
    """

    observers: Sequence[AnnouncementObserver] = ()
    answered: Callable[[AnswerRequest], None] = _ignore
    drills: DrillGround | None = None
    offered_drills: Sequence[DrillView] = ()
    read_tasks: Callable[[SubmitTasks], Sequence[TaskSpec]] | None = None
    read_config: ReadConfig | None = None
    may_shut_down: bool = False

"""Takes a changed cluster file in while the controller runs: first what it will do, then that."""

from collections.abc import Callable

from controller.api.wire import ReloadFile, Reply
from controller.core.events import FileReloaded
from controller.core.membership.change_words import lines_of
from controller.core.membership.file_changes import ImpossibleChangeError, changes
from controller.server.controller import Controller
from controller.server.controller_config import ControllerConfig
from controller.server.server_hooks import ReadConfig, SubmissionError, read_safely


async def reload(
    command: ReloadFile,
    read_config: ReadConfig,
    controller: Callable[[], Controller],
    adopt: Callable[[ControllerConfig], None],
) -> Reply | None:
    """Return the answer; None if the core gives it, once it has taken the changes in.

    Args:
        command: The request.
        read_config: Reads the file.
        controller: Returns the present controller.
        adopt: Called with the new config, for the next controllers of the run.
    """
    request_id = command.request_id
    try:
        config = await read_safely(lambda: read_config(is_dry_run=command.is_dry_run))
        present = controller()
        found = list(changes(config.wanted(), present.state, present.policy))
    except (SubmissionError, ImpossibleChangeError) as error:
        code = "invalid" if isinstance(error, SubmissionError) else "impossible"
        return Reply(request_id=request_id, is_ok=False, code=code, message=str(error))
    lines = (*lines_of(found, present.state, present.policy), *config.further_changes)
    if command.is_dry_run:
        text = f"{len(lines)} changes" if lines else "nothing has changed"
        data = {"changes": list[object](lines)}
        return Reply.model_validate(
            {"request_id": request_id, "is_ok": True, "message": text, "data": data}
        )
    if command.expected is not None and command.expected != lines:
        text = "the file, or the cluster, has changed since you looked: look again"
        return Reply(request_id=request_id, is_ok=False, code="superseded", message=text)
    adopt(config)
    for change in found:
        present.post(change)
    present.post(FileReloaded(request_id, command.actor, lines))
    return None

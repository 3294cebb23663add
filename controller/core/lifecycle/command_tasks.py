"""Tasks that are commands: what counts as running where a program says little of itself.

A command that has printed an iteration before runs again with its next one, as every task does. One
that never has counts as running once all its processes have lived for ``command_settle_s``; and
when they have lived for ``command_proof_s`` the recoveries before count no more, as after a new
iteration. Any fault of a command starts all its processes anew; it continues from its own
checkpoints.
"""

from typing import Final

from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.timers import CommandLives

NOT_IN_PROCESS: Final = "command task: its program is restarted"
"""What stands among the settings of a task that do not recover in process."""


def watch_command(turn: Turn, task: TaskState) -> None:
    """Check again once the started processes of a command should have lived for a while."""
    turn.set_timer(CommandLives(task.spec.task, task.generation), turn.policy.command_settle_s)


def take_life(turn: Turn, task: TaskState) -> None:
    """The processes of a command have had time to fail; it may have printed nothing."""
    if task.progress.iteration > 0:
        return
    if task.lifecycle.phase is TaskPhase.STARTING:
        if not all(rank.is_alive and rank.is_seen for rank in task.ranks.values()):
            watch_command(turn, task)
            return
        text = f"its {len(task.ranks)} processes live; it has printed no iteration"
        task.lifecycle.begin_training(text)
        task.progress.note_life(task.generation)
        turn.announce("good", "running", task.spec.task, text)
        task.transitions.drop()
        turn.set_timer(CommandLives(task.spec.task, task.generation), turn.policy.command_proof_s)
    elif task.lifecycle.phase is TaskPhase.RUNNING:
        task.faults.forget_cures()

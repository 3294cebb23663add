"""A task that is any command, started in the manner of torchrun: one process per worker.

The command is named here and nothing more. Its ranks meet through the variables of torchrun, which
the node's agent sets. The program saves and loads its checkpoints itself.
"""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from profiles.placeholders import names_in
from profiles.progress.progress_patterns import own_pattern

SET_BY_AGENT: Final = frozenset(
    {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_SIGNALS_TO_HANDLE",
        "UNICRON_TASK", "UNICRON_GENERATION", "UNICRON_TASK_DIR", "UNICRON_RANKS_SOCKET",
        "UNICRON_STATE_DIR",
    }
)  # fmt: skip
"""Variables of the environment that every rank of a command gets."""


def _is_word(word: str) -> str:
    if "\0" in word:
        raise ValueError("must not hold a NUL character")
    return word


def _is_filled_in(word: str) -> str:
    names_in(_is_word(word))
    return word


def _is_pattern(text: str) -> str:
    if text:
        own_pattern(text)
    return text


def _is_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not argv or not argv[0]:
        raise ValueError("must begin with a program")
    return argv


def _is_environment(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if not name or "=" in name:
            raise ValueError(f"{name!r} can't be the name of a variable")
        if name in SET_BY_AGENT:
            raise ValueError(f"{name} is set by the agent, for each rank")
    return environment


CommandWord = Annotated[str, AfterValidator(_is_word)]
CommandText = Annotated[str, AfterValidator(_is_filled_in)]
"""A word with names in braces, see ``profiles.placeholders``."""


class CommandTask(BaseModel):
    """A command, run once per worker, without a shell.

    Attributes:
        argv: The program and its arguments. A program without a slash is looked up in ``PATH``,
            which begins with the directory of the agent's own ``python``.
        env: Added to the environment of every rank. ``PYTHONPATH`` is put before that of the agent,
            which stays.
        cwd: Directory that it is started in; it must be there on every node.
        progress: Regular expression of the lines that show its iterations, where no known one reads
            them (``profiles.progress``).
        start_limit_s: Seconds from a start to the first iteration line, for a command that has
            printed one before.
        hang_limit_s: Seconds without an iteration line before the rank counts as hung. It has to
            cover all work between two lines, for instance a checkpoint.
        stop_limit_s: Seconds from SIGTERM to SIGKILL when a plan stops it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: Annotated[tuple[CommandText, ...], AfterValidator(_is_program)]
    env: Annotated[dict[CommandWord, CommandText], AfterValidator(_is_environment)] = {}
    cwd: CommandWord = ""
    progress: Annotated[str, AfterValidator(_is_pattern)] = ""
    start_limit_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    hang_limit_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    stop_limit_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)

    @property
    def placeholders(self) -> frozenset[str]:
        """Names in braces that its arguments and its environment hold."""
        return frozenset(
            name for text in (*self.argv, *self.env.values()) for name in names_in(text)
        )

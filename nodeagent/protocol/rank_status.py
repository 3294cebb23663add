"""The state of a rank's process, as heartbeats and the answers of ``nodeagent status`` have it.

It stands apart from ``messages``: commands of a node need it alone, and so start sooner.
"""

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.reported_numbers import Count


class RankStatus(BaseModel):
    """A living rank process on the node."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    task: TaskId
    generation: Generation
    global_rank: int
    worker: int
    pid: int
    iteration: Count = 0
    duration_s: float = 0.0
    busy_s: float = 0.0
    """Time of its own computing (see ``local.RankPulse``), median over its newest iterations.
    0 until there are enough of them."""
    busy_spread_s: float = 0.0
    """Median difference of these iterations from that."""
    waited_s: float = 0.0
    """How long its threads waited for a core in one of these iterations: median; 0 if unknown."""
    rss_bytes: Count = 0
    is_attached: bool = False
    """It is a command whose program has attached, and reports itself."""

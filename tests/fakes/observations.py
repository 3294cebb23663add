"""Observations as a rank reports them."""

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.observations import IterationCommitted


def committed(iteration: int) -> IterationCommitted:
    """Return the report of an iteration of rank 0 of gpt-a."""
    return IterationCommitted(
        task=TaskId("gpt-a"),
        generation=Generation(1),
        global_rank=0,
        iteration=iteration,
        loss=1.0,
        duration_s=0.1,
        num_tokens=8,
        grad_norm=1.0,
    )

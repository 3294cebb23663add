"""What can be no duration is read as none, and the report counts all the same."""

import json

import pytest

from nodeagent.protocol.observations import IterationCommitted, RankJoined
from nodeagent.protocol.standing import Standing

WHO = {"task": "gpt-a", "generation": 1, "global_rank": 0}


@pytest.mark.parametrize(
    ("told", "read"),
    [(2.5, 2.5), (0, 0.0), ("NaN", 0.0), ("Infinity", 0.0), (-1e-9, 0.0), (1e308, 0.0)],
)
def test_a_duration_is_read_if_it_can_be_one(told: object, read: float) -> None:
    joined = {**WHO, "iteration": 7, "source": "own", "form_s": told, "state_s": 1.5}
    found = RankJoined.model_validate_json(json.dumps(joined))
    assert (found.iteration, found.form_s, found.state_s) == (7, read, 1.5)
    again = RankJoined.model_validate_json(found.model_dump_json())
    assert again == found
    standing = Standing.model_validate({"where": "computing", "idle_s": told, "source": "rank"})
    assert standing.idle_s == read


def test_a_loss_may_be_no_number() -> None:
    line = json.dumps(
        {**WHO, "iteration": 7, "loss": "NaN", "duration_s": 1, "num_tokens": 8, "grad_norm": None}
    )
    assert str(IterationCommitted.model_validate_json(line).loss) == "nan"

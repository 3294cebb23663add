"""The catalogue of drills: complete, and in agreement with the table of faults."""

import pytest

from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import DRILL_BY_KIND, DRILLS
from profiles.drills.exception_texts import RAISED_BY_STATUS
from profiles.drills.kernel_texts import KERNEL_MESSAGES, LINK_FLAP, OOM_KILL
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status_table import default_statuses


def test_every_status_has_a_drill() -> None:
    assert {drill.expected.status for drill in DRILLS} >= {*default_statuses()}


def test_kinds_are_unique() -> None:
    assert len(DRILL_BY_KIND) == len(DRILLS)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.kind)
def test_expectations_follow_the_table_of_faults(drill: Drill) -> None:
    expected = drill.expected
    if expected.severity == "none":
        assert (expected.action, expected.ending) == ("none", "unharmed")
        assert expected.status in {"none", "straggler", "takeover", "unreachable"}
        return
    assert expected.severity == default_statuses()[expected.status].severity
    action = {"SEV1": "reconfigure", "SEV2": "restart", "SEV3": "reattempt"}[expected.severity]
    is_counted = drill.target == "node" and action == "reattempt"
    is_left_alone = is_counted or (expected.status == "nan_loss" and expected.culprit == "task")
    assert expected.action == ("none" if is_left_alone else action)


@pytest.mark.parametrize("status", RAISED_BY_STATUS)
def test_an_exception_has_the_words_of_its_status(status: str) -> None:
    raised = RAISED_BY_STATUS[status]
    text = f"Traceback (most recent call last):\n{raised.exception}: {raised.message}"
    assert classify_excerpt(text).status == status


@pytest.mark.parametrize("name", KERNEL_MESSAGES)
def test_a_kernel_message_has_the_words_of_its_status(name: str) -> None:
    message = KERNEL_MESSAGES[name]
    text = message.text.format(pid=4711, name="ur:gpt-a/1")
    assert classify_excerpt(text).status == message.status


def test_the_other_kernel_lines_are_understood() -> None:
    assert classify_excerpt(f"{LINK_FLAP}\n{LINK_FLAP}").status == "link_flapping"
    assert classify_excerpt(OOM_KILL.format(pid=1, name="x")).status == "exited_abnormally"

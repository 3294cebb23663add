"""What travels on the API socket: commands in, messages out, each told by its kind."""

from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from controller.api.views import LogLevel, LogLine
from controller.api.wire import (
    API_VERSION,
    ApproveCure,
    ApprovePlan,
    AskWhatIf,
    CancelMeasurement,
    Changes,
    Command,
    DecideLoss,
    DeferPlan,
    DescribeCluster,
    FromServer,
    Greeting,
    LimitTask,
    LogLines,
    LogPosition,
    MeasureTask,
    MovePlayback,
    OrderNode,
    OrderTask,
    ReadEvidence,
    ReadHistory,
    ReadLogs,
    RejectPlan,
    ReloadFile,
    Reply,
    RequestPlan,
    ResumeAutomation,
    RunDrill,
    Shutdown,
    Snapshot,
    SubmitTasks,
    UncordonNode,
)
from tests.fakes import cluster_views

COMMAND: TypeAdapter[Command] = TypeAdapter(Command)
FROM_SERVER: TypeAdapter[FromServer] = TypeAdapter(FromServer)

COMMANDS: list[Command] = [
    ApprovePlan(request_id="r1", actor="op", plan="P-1", revision=2),
    ApproveCure(request_id="r19", actor="op", incident="I-3", action="restart"),
    RejectPlan(request_id="r2", actor="op", plan="P-1", revision=2, reason="später"),
    RequestPlan(request_id="r3", actor="op"),
    DecideLoss(request_id="r8", actor="op", node="n2", is_lost=False),
    UncordonNode(request_id="r7", actor="op", node="n2", is_forced=True),
    MeasureTask(request_id="r9", actor="op", task="gpt-a", sizes=(1, 2), num_iterations=5),
    CancelMeasurement(request_id="r10", actor="op", measurement="M-1"),
    RunDrill(request_id="r4", actor="op", drill="kill-rank", task="gpt-a", rank=0),
    RunDrill(request_id="r5", actor="op", drill="lose-node", node="n2"),
    AskWhatIf(request_id="r11", actor="op", lost=("n2",), added={"n9": 8}, weights={"gpt-a": 2.0}),
    DescribeCluster(request_id="r12", actor="op"),
    OrderTask(request_id="r15", actor="op", order="stop", task="gpt-a"),
    LimitTask(request_id="r16", actor="op", task="gpt-a", weight=2.0, max_workers=0),
    SubmitTasks(request_id="r17", actor="op", name="t.toml", text="[[task]]", folder="/x"),
    OrderNode(request_id="r18", actor="op", order="drain", node="n1", reason="new fan"),
    ReloadFile(request_id="r19", actor="op", expected=("node n6 joins, with 2 workers",)),
    DeferPlan(request_id="r20", actor="op", plan="P-1", revision=2, for_s=600.0),
    ResumeAutomation(request_id="r21", actor="op"),
    ReadHistory(request_id="r13", actor="op", table="audit", name="n1"),
    ReadEvidence(request_id="r23", actor="op", incident="I-3"),
    ReadLogs(request_id="r14", actor="op", task="gpt-a", after={3: LogPosition(name="x", end=7)}),
    MovePlayback(request_id="r22", actor="op", moment="I-3", is_playing=False, speed=4.0),
    Shutdown(request_id="r6", actor="op"),
]
LINE = LogLine(seq=1, at=0.5, level=LogLevel.DRILL, source="n1", text="one\ntwo")
MESSAGES: list[FromServer] = [
    Changes(fields={"now": 12.5, "nodes": {"changed": {"1": {"heartbeat_at": 12.4}}}}),
    Greeting(cluster="demo"),
    Snapshot(view=cluster_views.waiting()),
    LogLines(lines=[LINE]),
    Reply(request_id="r1", is_ok=False, code="superseded", message="P-1 has changed"),
    Reply(request_id="r9", is_ok=True, data={"assignments": {"gpt-a": 4}}),
]


def kinds(union: object) -> set[type]:
    return set(get_args(get_args(union)[0]))


def test_the_examples_here_cover_every_message() -> None:
    assert {type(command) for command in COMMANDS} == kinds(Command)
    assert {type(message) for message in MESSAGES} == kinds(FromServer)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.kind)
def test_a_command_comes_back_equal_from_one_line(command: Command) -> None:
    line = command.model_dump_json()
    assert "\n" not in line
    assert COMMAND.validate_json(line) == command


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_a_message_comes_back_equal_from_one_line(message: FromServer) -> None:
    line = message.model_dump_json()
    assert "\n" not in line
    assert FROM_SERVER.validate_json(line) == message


def test_a_greeting_states_the_version() -> None:
    assert f'"version":{API_VERSION}' in Greeting(cluster="demo").model_dump_json()


def test_fields_of_a_newer_peer_are_ignored() -> None:
    text = '{"kind":"shutdown","request_id":"r","actor":"op","because":"new"}'
    assert COMMAND.validate_json(text) == Shutdown(request_id="r", actor="op")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shutdown",
        "[]",
        '{"request_id":"r","actor":"op"}',
        '{"kind":"explode","request_id":"r","actor":"op"}',
        '{"kind":"greeting","cluster":"demo"}',
        '{"kind":"approve_plan","request_id":"r","actor":"op","plan":"P-1"}',
        '{"kind":"approve_plan","request_id":"r","actor":"op","plan":"P-1","revision":"one"}',
        '{"kind":"ask_what_if","request_id":"r","actor":"op","weights":{"gpt-a":-1}}',
        '{"kind":"ask_what_if","request_id":"r","actor":"op","weights":{"gpt-a":"NaN"}}',
        '{"kind":"ask_what_if","request_id":"r","actor":"op","num_added":-1}',
        '{"kind":"ask_what_if","request_id":"r","actor":"op","added":{"n9":9999999}}',
    ],
)
def test_anything_else_is_no_command(text: str) -> None:
    with pytest.raises(ValidationError):
        COMMAND.validate_json(text)


def test_a_loss_that_is_no_number_reaches_the_console() -> None:
    view = cluster_views.calm()
    task = view.tasks[0].model_copy(update={"loss": float("nan"), "losses": {3: float("inf")}})
    line = Snapshot(view=view.model_copy(update={"tasks": [task]})).model_dump_json()
    assert '"loss":"NaN"' in line
    message = FROM_SERVER.validate_json(line)
    assert isinstance(message, Snapshot)
    [again] = message.view.tasks
    assert again.loss is not None
    assert again.loss != again.loss
    assert again.losses == {3: float("inf")}

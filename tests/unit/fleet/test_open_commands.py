"""Commands without an answer yet: each ends in one event, and an unknown outcome is no failure."""

from controller.core.events import CommandFailed, EventBody, PeerProbed, StopCarriedOut
from controller.fleet.open_commands import OpenCommands, ProbeSubject, RankSubject
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import CommandDone

NODE, PEER = NodeId("n1"), NodeId("n2")
STOP = RankSubject("stop", TaskId("gpt-a"), Generation(3))


def opened() -> tuple[OpenCommands, list[EventBody]]:
    events: list[EventBody] = []
    commands = OpenCommands(NODE, events.append)
    commands.add("a stop", STOP)
    commands.add("a probe", ProbeSubject(PEER))
    return commands, events


def test_an_answer_ends_its_command_once() -> None:
    commands, events = opened()
    for _ in range(2):
        commands.take(CommandDone(command_id="a stop"))
    commands.take(CommandDone(command_id="a probe", detail="refused"))
    assert events == [
        StopCarriedOut(NODE, STOP.task, STOP.generation),
        PeerProbed(PEER, NODE, "refused"),
    ]


def test_what_the_agent_refuses_has_failed() -> None:
    commands, events = opened()
    commands.take(CommandDone(command_id="a stop", error="no such rank"))
    assert events == [
        CommandFailed(
            NODE, "stop", STOP.task, STOP.generation, "no such rank", is_outcome_unknown=False
        )
    ]


def test_what_is_open_when_contact_is_lost_has_an_unknown_outcome() -> None:
    commands, events = opened()
    commands.lose_contact()
    failed, probed = events
    assert isinstance(failed, CommandFailed)
    assert failed.is_outcome_unknown
    assert probed == PeerProbed(PEER, NODE, None)
    commands.take(CommandDone(command_id="a stop"))
    assert len(events) == 2

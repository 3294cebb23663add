"""A console on a playback: keys move the instant, nothing changes the cluster, both are shown."""

import pytest
from hypothesis import given, strategies as st

from console.command_registry import COMMANDS, Danger, is_past
from console.viewmodel.compared_instants import comparison
from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import ASCII, UNICODE
from console.viewmodel.drawing.text import cells_wide
from console.viewmodel.panels.playback_strip import SPEEDS, faster, playback_line, slower
from console.viewmodel.reducer import Received
from console.viewmodel.trend import KEPT_S, STEP_S, past_trend
from controller.api.views import ClusterView, MarkView, PlaybackView
from controller.api.wire import LogLines, MovePlayback, Reply
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

MARKS = [
    MarkView(at=0.0, kind="controller", name="1", text="controller started"),
    MarkView(at=33.0, kind="incident", name="I-1", text="exited_abnormally gpt-a on n2"),
    MarkView(at=95.0, kind="plan", name="P-1", text="n4 is lost"),
]


def past(view: ClusterView, **changes: object) -> ClusterView:
    """Return the view as one of a playback."""
    fields = {
        "source": "journal",
        "begin": 0.0,
        "end": 500.0,
        "unknown": "heartbeats",
        "marks": MARKS,
    }
    fields["wafs"] = [(0.0, 0.0), (20.0, 1.0), (33.0, 0.4), (40.0, 1.0)]
    playback = PlaybackView.model_validate({**fields, **changes})
    return view.model_copy(update={"playback": playback})


def moves(bench: Bench) -> list[dict[str, object]]:
    """Return what was asked of the playback, without names."""
    assert all(isinstance(each, MovePlayback) for each in bench.source.sent)
    found = [each.model_dump(exclude_defaults=True) for each in bench.source.sent]
    bench.source.sent.clear()
    return [
        {name: value for name, value in each.items() if name not in {"kind", "request_id", "actor"}}
        for each in found
    ]


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 48)])
async def test_the_screen_says_that_this_is_the_past_and_which_instant(
    size: tuple[int, int],
) -> None:
    async with console(past(cluster_views.calm(100.0)), size=size) as bench:
        lines = bench.screen.splitlines()
        assert "PLAYBACK" in lines[0]
        assert lines[0].endswith("14:01:40Z")
        assert any(line.startswith(" paused  14:00:00 ") for line in lines[-3:])
        await bench.wait(60)
        assert bench.screen.splitlines()[0].endswith("14:01:40Z"), (
            "its time does not pass by itself"
        )
        await bench.press("enter")
        assert any(line.startswith(" paused  14:00:00 ") for line in bench.screen.splitlines())


async def test_keys_move_the_instant() -> None:
    async with console(past(cluster_views.calm(100.0)), size=(160, 48)) as bench:
        await bench.press("}", "{", ".", ",", "left", "right")
        assert moves(bench) == [
            {"step": "incident"},
            {"step": "incident", "is_back": True},
            {"step": "line"},
            {"step": "line", "is_back": True},
            {"by_s": -60.0},
            {"by_s": 60.0},
        ]
        await bench.press("p", ")", "(")
        assert moves(bench) == [{"is_playing": True}, {"speed": 2.0}, {"speed": 0.5}]
        await bench.show(past(cluster_views.calm(101.0), is_playing=True, speed=8.0))
        assert "<p>pause" in bench.screen
        assert " x8  14:00:00 " in bench.screen
        await bench.press("p", ")")
        assert moves(bench) == [{"is_playing": False}, {"speed": 16.0}]
        await bench.show(past(cluster_views.calm(500.0)))
        await bench.press("p")
        assert moves(bench) == [{"is_playing": True, "by_s": -500.0}], "from the end it begins anew"
        await bench.press("enter", "}")
        assert moves(bench) == [{"step": "incident"}], "also on the screen about a node"


async def test_a_moment_is_typed_and_a_wrong_one_is_told() -> None:
    async with console(past(cluster_views.calm(100.0)), size=(100, 30)) as bench:
        await bench.press("@", opens_dialog=True)
        assert "An incident (I-1), a time of day" in bench.screen
        await bench.press(*"I-1", "enter")
        assert moves(bench) == [{"moment": "I-1"}]
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=False, code="invalid", message="'x' is no moment"
        )
        await bench.press("@", opens_dialog=True)
        await bench.press("x", "enter")
        await bench.settle()
        assert "'x' is no moment" in bench.screen


async def test_no_key_changes_the_past() -> None:
    view = past(cluster_views.waiting())
    async with console(view, size=(160, 48), is_armed=False) as bench:
        assert not any(
            word in bench.screen.splitlines()[-1] for word in ("approve", "arm", "drill")
        )
        await bench.press("ctrl+t")
        assert not bench.app.state.is_armed
        for command in COMMANDS:
            if command.danger is not Danger.NONE:
                await bench.press(command.key.split(",")[0])
                assert command.enabled(bench.app.state) is not True, command.id
        assert bench.source.sent == []
        assert "this is the past" in bench.screen


async def test_a_living_cluster_has_no_keys_of_a_playback() -> None:
    async with console(cluster_views.calm(), size=(160, 48)) as bench:
        await bench.press("}", "p", "=")
        assert bench.source.sent == []
        assert "<}>" not in bench.screen
        assert "this is no playback" in bench.screen
        await bench.press("question_mark", opens_dialog=True)
        assert "of a playback" not in bench.screen
    async with console(past(cluster_views.calm()), size=(160, 60)) as bench:
        await bench.press("question_mark", opens_dialog=True)
        assert "Next incident of a playback" in bench.screen


async def test_two_instants_are_compared() -> None:
    async with console(past(cluster_views.waiting(131.0)), size=(160, 48)) as bench:
        assert "<=>mark" in bench.screen
        await bench.press("=")
        assert "<=>compare" in bench.screen
        await bench.show(past(cluster_views.calm(100.0)))
        await bench.press("=", opens_dialog=True)
        shown = bench.screen
        assert "14:01:40 to 14:02:11, 31 s" in shown
        assert "node n4: healthy -> lost" in shown
        await bench.press("d")
        await bench.settle()
        assert "<=>mark" in bench.screen


def test_what_differs_is_named_in_the_order_of_time() -> None:
    before, after = cluster_views.calm(100.0), cluster_views.healed(150.0)
    assert comparison(before, after) == comparison(after, before)
    assert comparison(before, before.model_copy(update={"now": 101.0}))[1:] == [
        "nothing has changed"
    ]
    gone = after.model_copy(update={"tasks": after.tasks[1:], "nodes": after.nodes[:-1]})
    words = comparison(before, gone)
    assert f"task {after.tasks[0].name}: gone" in words
    assert f"node {after.nodes[-1].node}: gone" in words


async def test_after_a_jump_back_only_the_lines_of_then_are_there() -> None:
    lines = cluster_views.log(8)
    async with console(past(cluster_views.calm(100.0)), *lines, size=(100, 40)) as bench:
        assert lines[-1].text in bench.screen
        bench.app.inbox.put(Received(bench.now, LogLines(lines=lines[:3], replaces=True)))
        await bench.settle()
        assert [line.seq for line in bench.app.state.log.lines] == [1, 2, 3]
        assert bench.app.state.log.num_missed == 0
        bench.app.inbox.put(Received(bench.now, LogLines(lines=lines[3:5])))
        await bench.settle()
        assert [line.seq for line in bench.app.state.log.lines] == [1, 2, 3, 4, 5]


def test_speeds_are_steps_with_ends() -> None:
    assert [faster(each) for each in SPEEDS] == [*SPEEDS[1:], SPEEDS[-1]]
    assert [slower(each) for each in SPEEDS] == [SPEEDS[0], *SPEEDS[:-1]]
    assert faster(3.0) == 4.0


@given(
    st.integers(40, 220), st.floats(0, 500), st.sampled_from([UNICODE, ASCII]),
    st.lists(st.tuples(st.floats(-10, 600), st.sampled_from(["incident", "plan", "controller"]))),
)  # fmt: skip
def test_the_strip_has_room_in_any_terminal(
    width: int, now: float, glyphs: object, marks: list[tuple[float, str]]
) -> None:
    found = [{"at": at, "kind": kind, "name": "X", "text": "x" * 90} for at, kind in marks]
    state = State(view=past(cluster_views.calm(now), marks=found))
    line = playback_line(state, width, glyphs)  # type: ignore[arg-type]
    assert cells_wide(line.spans) <= width


def test_the_strip_has_a_sign_for_each_incident_and_the_instant() -> None:
    text = "".join(
        part.text
        for part in playback_line(State(view=past(cluster_views.calm(250.0))), 160, ASCII).spans
    )
    strip = text.split()[2]
    assert (strip[0], strip[round(33 / 500 * (len(strip) - 1))]) == ("#", "!")
    assert strip[round(0.5 * (len(strip) - 1))] == "o"
    assert text.rstrip().endswith("2m35s after P-1 n4 is lost")


@given(
    st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 1)), max_size=30).map(sorted),
    st.floats(0, 3000),
)
def test_the_trend_of_the_past_has_the_lowest_share_of_each_step(
    wafs: list[tuple[float, float]], now: float
) -> None:
    known = [each for each in wafs if each[0] <= now]
    trend = past_trend(wafs, now)
    assert bool(trend) == bool(known)
    for step in trend:
        assert step.at > now - KEPT_S - STEP_S
        before = [share for at, share in known if at < step.at]
        within = [share for at, share in known if step.at <= at < step.at + STEP_S]
        assert step.low == min([*before[-1:], *within])
        assert step.last == [*before, *within][-1]


def test_keys_of_playbacks_are_their_own() -> None:
    keys = [key for command in COMMANDS for key in command.key.split(",")]
    assert len(keys) == len(set(keys))
    assert {command.danger for command in COMMANDS if command.enabled is is_past} == {Danger.NONE}

"""The recorder of the drill matrix keeps announcements."""

from controller.core.instructions import Announce, Level
from controller.drill_matrix.recorder import DrillRecorder
from controller.drill_matrix.row import Notice


def said(
    kind: str, source: str, text: str = "", level: Level = "warning", **facts: object
) -> Announce:
    return Announce(1, level, kind, source, text, tuple(facts.items()))  # type: ignore[arg-type]


def test_notices_count_from_the_drill_on() -> None:
    recorder = DrillRecorder()
    recorder.observe(1.0, said("unreachable", "n1"))
    mark = recorder.mark()
    assert recorder.carried_out_at(mark) is None
    recorder.observe(2.0, said("drill", "n2", level="drill"))
    recorder.observe(2.5, said("unreachable", "n2"))
    recorder.observe(4.0, said("straggler", "gpt-a", rank=1, node="n1"))
    assert recorder.carried_out_at(mark) == 2.0
    assert recorder.notices(mark, 2.0) == [
        Notice("unreachable", 0.5, "n2", "n2", None),
        Notice("straggler", 2.0, "gpt-a", "n1", 1),
    ]


def test_what_is_said_about_a_drill_is_a_note_and_traces_are_dropped() -> None:
    recorder = DrillRecorder()
    recorder.observe(1.0, said("iteration", "gpt-a", "iteration 3", level="trace"))
    recorder.observe(1.0, said("note", "drill", "drill kill-agent: node n1 has no running agent"))
    assert recorder.notes(0) == ("drill kill-agent: node n1 has no running agent",)
    assert recorder.mark() == 1

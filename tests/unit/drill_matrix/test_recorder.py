"""What the matrix keeps of what the controller says."""

from controller.core.instructions import Announce, Level
from controller.drill_matrix.recorder import Ear
from controller.drill_matrix.row import Notice


def said(
    kind: str, source: str, text: str = "", level: Level = "warning", **facts: object
) -> Announce:
    return Announce(1, level, kind, source, text, tuple(facts.items()))  # type: ignore[arg-type]


def test_notices_count_from_the_drill_on() -> None:
    ear = Ear()
    ear.hear(1.0, said("unreachable", "n1"))
    mark = ear.mark()
    assert ear.struck_at(mark) is None
    ear.hear(2.0, said("drill", "n2", level="drill"))
    ear.hear(2.5, said("unreachable", "n2"))
    ear.hear(4.0, said("straggler", "gpt-a", rank=1, node="n1"))
    assert ear.struck_at(mark) == 2.0
    assert ear.notices(mark, 2.0) == [
        Notice("unreachable", 0.5, "n2", "n2", None),
        Notice("straggler", 2.0, "gpt-a", "n1", 1),
    ]


def test_what_is_said_about_a_drill_is_a_note_and_traces_are_dropped() -> None:
    ear = Ear()
    ear.hear(1.0, said("iteration", "gpt-a", "iteration 3", level="trace"))
    ear.hear(1.0, said("note", "drill", "drill kill-agent: n1 has no living agent"))
    assert ear.notes(0) == ("drill kill-agent: n1 has no living agent",)
    assert ear.mark() == 1

"""When a channel gets an alert: once, again if it is more urgent, and when it is over."""

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from controller.alerts.alert import Alert, AlertSeverity
from controller.alerts.alert_gate import AlertGate, AlertMessage
from controller.alerts.notify_tables import NotifyChannel

CHANNEL = NotifyChannel("mail", "warning", (), 3, "json://x")
LOST = Alert("lost n1", "warning", "node n1 is lost")
HELD = Alert("incident INC-1", "critical", "INC-1 waits for you", tasks=("gpt-a",))
SEVERITIES: dict[str, AlertSeverity] = {"info": "info", "critical": "critical"}
CURED = Alert("incident INC-2", "warning", "INC-2 is over", is_over=True)


def titles(message: AlertMessage | None) -> list[str]:
    return [each.title for each in message.alerts] if message else []


def sent(gate: AlertGate, alerts: list[Alert], at: float) -> list[str]:
    """Return what is sent once all of a moment has been gathered."""
    assert gate.take(alerts, at) is None
    return titles(gate.take(alerts, at + 3.0))


def test_an_alert_is_sent_once_and_once_more_when_it_is_over() -> None:
    gate = AlertGate(CHANNEL)
    assert sent(gate, [LOST], 0) == ["node n1 is lost"]
    assert sent(gate, [LOST], 100) == []
    assert sent(gate, [], 200) == ["over: node n1 is lost"]
    assert sent(gate, [], 300) == []
    assert sent(gate, [LOST], 400) == ["node n1 is lost"]


def test_alerts_of_one_moment_are_one_message_the_most_urgent_first() -> None:
    gate = AlertGate(CHANNEL)
    assert gate.take([LOST], 0) is None
    assert gate.take([LOST, HELD], 2) is None
    assert titles(gate.take([LOST, HELD], 3)) == [HELD.title, LOST.title]


def test_what_becomes_more_urgent_is_sent_again_and_what_becomes_less_is_not() -> None:
    gate = AlertGate(CHANNEL)
    mild = replace(HELD, severity="info", title="INC-1 is being cured")
    assert sent(gate, [mild], 0) == []
    assert sent(gate, [HELD], 100) == [HELD.title]
    assert sent(gate, [mild], 200) == []
    assert sent(gate, [HELD], 300) == []
    assert sent(gate, [replace(mild, is_over=True)], 400) == [mild.title]


def test_a_warning_that_becomes_critical_is_sent_once_more() -> None:
    gate = AlertGate(CHANNEL)
    warning = replace(HELD, severity="warning", title="INC-1 is being cured")
    assert sent(gate, [warning], 0) == [warning.title]
    assert sent(gate, [HELD], 100) == [HELD.title]
    assert sent(gate, [warning], 200) == []


def test_a_fault_that_is_cured_between_two_looks_is_one_message() -> None:
    gate = AlertGate(CHANNEL)
    gate.begin([CURED])
    later = replace(CURED, key="incident INC-3", title="INC-3 is over")
    assert sent(gate, [CURED], 0) == [], "it was over before this channel began"
    assert sent(gate, [CURED, later], 100) == ["INC-3 is over"]
    gate = AlertGate(CHANNEL)
    gate.take([HELD], 0)
    assert titles(gate.take([replace(HELD, title="cured", is_over=True)], 3)) == ["cured"]


def test_a_channel_of_some_tasks_gets_what_is_about_them_or_about_none() -> None:
    gate = AlertGate(replace(CHANNEL, tasks=("gpt-b",)))
    assert sent(gate, [LOST, HELD], 0) == [LOST.title]


def test_an_hour_has_room_for_so_many_messages_and_the_rest_is_one_later() -> None:
    gate = AlertGate(CHANNEL)
    alerts = [replace(LOST, key=f"lost n{number}", title=f"n{number}") for number in range(50)]
    assert sent(gate, alerts[:1], 0) == ["n0"]
    assert sent(gate, alerts[:2], 10) == ["n1"]
    assert gate.take(alerts[:3], 20) is None
    third = gate.take(alerts[:3], 23)
    assert third is not None
    assert third.note.startswith(
        "This channel has room for 3 messages an hour. The next follows in"
    )
    for second in range(30, 3600, 10):
        assert gate.take(alerts, float(second)) is None
    rest = gate.take(alerts, 3604.0)
    assert titles(rest) == [f"n{number}" for number in range(3, 50)]


def test_what_was_not_sent_is_sent_as_it_is_then() -> None:
    gate = AlertGate(CHANNEL)
    gate.take([LOST, HELD], 0)
    message = gate.take([LOST, HELD], 3)
    assert message is not None
    gate.put_back(message)
    assert gate.remembered() == ({}, set()), "nothing was told yet"
    again = gate.take([LOST, replace(HELD, title="INC-1 is over", is_over=True)], 10)
    assert titles(again) == [LOST.title, "INC-1 is over"]
    assert gate.remembered() == ({LOST.key: LOST}, {HELD.key})


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from(["info", "warning", "critical", "over", "absent"]),
            ),
            max_size=4,
            unique_by=lambda each: each[0],
        ),
        max_size=25,
    )
)
def test_every_urgent_alert_reaches_the_channel_and_nothing_is_told_twice(
    moments: list[list[tuple[str, str]]],
) -> None:
    gate = AlertGate(replace(CHANNEL, most_per_hour=1000))
    told: dict[str, AlertSeverity] = {}
    for number, moment in enumerate(moments):
        alerts = [
            replace(LOST, key=key, severity=SEVERITIES.get(kind, "warning"), is_over=kind == "over")
            for key, kind in moment
            if kind != "absent"
        ]
        gate.take(alerts, number * 10.0)
        message = gate.take(alerts, number * 10.0 + 3)
        for each in message.alerts if message else ():
            if each.is_over:
                told.pop(each.key, None)
            else:
                assert told.get(each.key) is None or each.rank > Alert("", told[each.key], "").rank
                told[each.key] = each.severity
        open_now = {each.key: each.rank for each in alerts if not each.is_over}
        assert told.keys() <= open_now.keys(), "what is over was said to be over"
        for key, rank in open_now.items():
            assert key in told or rank < 1
            assert key not in told or Alert("", told[key], "").rank >= rank

"""Decides which alerts are sent over one channel, and when. Pure: time is an argument.

An alert is sent when it begins. It is sent again if it becomes more urgent, and at its end. Alerts
of the same moment make one message. An hour has room for so many messages; what comes beyond waits
and makes one message when there is room. Nothing is dropped.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from controller.alerts.alert import Alert, severity_rank
from controller.alerts.notify_tables import NotifyChannel

_GATHER_S: Final = 3.0
_WINDOW_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """Alerts that are sent together, the most urgent first, and a note about the channel."""

    alerts: tuple[Alert, ...]
    note: str = ""


class RememberedChannel(NamedTuple):
    """What was sent over one channel, for the next controller: see ``AlertGate``."""

    sent: dict[str, Alert]
    over: set[str]


@dataclass(slots=True)
class AlertGate:
    """What was sent over one channel.

    Attributes:
        channel: Its settings.
        sent: By key, the alerts that were sent and are not over.
        over: Keys of alerts that are over, and were sent or began before this channel.
    """

    channel: NotifyChannel
    sent: dict[str, Alert] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    _waiting: dict[str, Alert] = field(default_factory=dict)
    _waits_since: float | None = None
    _sent_at: deque[float] = field(default_factory=deque)

    def begin(self, alerts: Iterable[Alert]) -> None:
        """Take what is over already for known: it is not sent."""
        self.over |= {alert.key for alert in alerts if alert.is_over}

    def take(self, alerts: Sequence[Alert], at: float) -> AlertMessage | None:
        """Return what is to be sent now, ``at`` seconds after the start of the run, if anything."""
        self.over &= {alert.key for alert in alerts if alert.is_over}
        for alert in self._news({alert.key: alert for alert in alerts if self._is_wanted(alert)}):
            self._waiting[alert.key] = alert
            if self._waits_since is None:
                self._waits_since = at
        if self._waits_since is None or at - self._waits_since < _GATHER_S:
            return None
        return self._message(at)

    def put_back(self, message: AlertMessage) -> None:
        """A message could not be sent: its alerts make the next one, as they are then."""
        self._waiting = {alert.key: alert for alert in message.alerts} | self._waiting
        self._waits_since = self._sent_at.pop()

    def remembered(self) -> RememberedChannel:
        """Return what the next controller has to know. What still waits is not sent."""
        sent = {key: alert for key, alert in self.sent.items() if key not in self._waiting}
        return RememberedChannel(sent, self.over - self._waiting.keys())

    def _is_wanted(self, alert: Alert) -> bool:
        if alert.key in self.sent:
            return True
        tasks = self.channel.tasks
        if tasks and alert.tasks and not set(tasks) & set(alert.tasks):
            return False
        return alert.rank >= severity_rank(self.channel.severity)

    def _news(self, alerts: Mapping[str, Alert]) -> list[Alert]:
        """Return what has begun, has become more urgent, or is over, and note it as sent."""
        found = [alert for alert in alerts.values() if self._is_news(alert)]
        for alert in found:
            if alert.is_over:
                self.sent.pop(alert.key, None)
                self.over.add(alert.key)
            else:
                self.sent[alert.key] = alert
                self.over.discard(alert.key)
        gone = [key for key in self.sent if key not in alerts]
        return found + [_over(self.sent.pop(key)) for key in gone]

    def _is_news(self, alert: Alert) -> bool:
        if alert.is_over:
            return alert.key not in self.over
        sent = self.sent.get(alert.key)
        return sent is None or alert.rank > sent.rank

    def _message(self, at: float) -> AlertMessage | None:
        while self._sent_at and self._sent_at[0] <= at - _WINDOW_S:
            self._sent_at.popleft()
        most = self.channel.most_per_hour
        if len(self._sent_at) >= most:
            return None
        self._sent_at.append(at)
        alerts = sorted(self._waiting.values(), key=lambda alert: (alert.is_over, -alert.rank))
        self._waiting, self._waits_since = {}, None
        if len(self._sent_at) < most:
            return AlertMessage(tuple(alerts))
        minutes = (self._sent_at[0] + _WINDOW_S - at) / 60
        return AlertMessage(
            tuple(alerts),
            f"This channel has room for {most} messages an hour. The next follows in"
            f" {minutes:.0f} minutes; `unicron alerts` shows what is so now.",
        )


def _over(alert: Alert) -> Alert:
    """Return the word that an alert is over, which the view does not show any more."""
    facts = (("needs", "nothing: it is no longer so"),)
    return replace(alert, title=f"over: {alert.title}", facts=facts, commands=(), is_over=True)

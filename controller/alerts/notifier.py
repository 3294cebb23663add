"""Notifies people: each channel of a cluster file is served by a task of its own.

Nothing waits for it. What could not be sent is tried again, as it is then; that a channel fails is
announced, and is an alert on the other channels.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller.alerts.alert import Alert, AlertSeverity, severity_rank
from controller.alerts.alert_gate import AlertGate, AlertMessage, RememberedChannel
from controller.alerts.message_texts import message_text
from controller.alerts.notify_tables import ChannelError, NotifyChannel
from controller.alerts.present_alerts import present_alerts
from controller.alerts.sending import send
from controller.api.views import ClusterView

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
_PAUSES_S: Final = (5.0, 15.0, 60.0, 300.0)
"""Between tries while a channel fails; the last one again and again."""
MEMORY_NAME: Final = "alerts.json"
"""File of the run directory that says what was sent over each channel."""


class Notifier:
    """Serves the channels of one cluster. ``run`` serves until cancelled.

    Args:
        path: The cluster file, for the commands in messages.
        run_dir: Where it remembers what was sent.
        view: Returns the view of the cluster.
        channels: Returns the channels; they may change.
        note: Called with a text and whether it is a warning, for operators.
    """

    def __init__(
        self,
        path: Path,
        run_dir: Path,
        view: Callable[[], ClusterView],
        channels: Callable[[], tuple[NotifyChannel, ...]],
        note: Callable[[str, bool], None],
    ) -> None:
        self._path, self._view, self._channels, self._note = path, view, channels, note
        self._memory_path = run_dir / MEMORY_NAME
        self._memory: dict[str, RememberedChannel] = _read_memory(self._memory_path)
        self._alerts: list[Alert] = []
        self._cluster, self._now = "", 0.0
        self._failing: dict[str, Alert] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            channels = self._channels()
            self._failing.clear()
            async with asyncio.TaskGroup() as group:
                if channels:
                    self._look()
                serving = [group.create_task(self._serve(channel)) for channel in channels]
                while self._channels() == channels:
                    await asyncio.sleep(_LOOK_S)
                    if channels:
                        self._look()
                for each in serving:
                    each.cancel()

    def _look(self) -> None:
        view = self._view()
        self._cluster, self._now, self._alerts = view.cluster, view.now, present_alerts(view)

    async def _serve(self, channel: NotifyChannel) -> None:
        gate = AlertGate(channel)
        known = self._memory.get(channel.name)
        if known is None:
            gate.begin(self._alerts)
        else:
            # Copies: what waits here must not be saved as sent when another channel is.
            gate.sent, gate.over = dict(known.sent), set(known.over)
        num_failures = 0
        while True:
            message = gate.take([*self._alerts, *self._alerts_of_others(channel)], self._now)
            if message is None:
                await asyncio.sleep(_LOOK_S)
                continue
            problem = await self._send(channel, message)
            if problem:
                gate.put_back(message)
                self._failed(channel, problem, is_first=num_failures == 0)
                await asyncio.sleep(_PAUSES_S[min(num_failures, len(_PAUSES_S) - 1)])
                num_failures += 1
                continue
            if num_failures:
                num_failures = 0
                self._failing.pop(channel.name, None)
                self._note(f"channel {channel.name} works again", False)
            self._remember(channel, gate)

    def _alerts_of_others(self, channel: NotifyChannel) -> list[Alert]:
        return [alert for name, alert in self._failing.items() if name != channel.name]

    async def _send(self, channel: NotifyChannel, message: AlertMessage) -> str:
        try:
            url = channel.read_url()
        except ChannelError as error:
            return str(error)
        try:
            return await send(url, message_text(self._cluster, self._path, message))
        except OSError as error:
            return f"no process could be started: {error.strerror or error}"

    def _failed(self, channel: NotifyChannel, problem: str, *, is_first: bool) -> None:
        text = f"channel {channel.name} can't be reached: {problem}"
        _LOG.warning("alert not sent: channel=%s reason=%s", channel.name, problem)
        self._failing[channel.name] = Alert(
            f"channel {channel.name}", "warning", text,
            (("needs", "a look at the service, and at its table [[notify]]"),),
            (f"unicron notify {channel.name} --test",), since=self._now,
        )  # fmt: skip
        if is_first:
            self._note(f"{text}; it is tried again", True)

    def _remember(self, channel: NotifyChannel, gate: AlertGate) -> None:
        self._memory[channel.name] = gate.remembered()
        kept = {
            name: {
                "sent": {key: [alert.severity, alert.title] for key, alert in sent.items()},
                "over": sorted(over),
            }
            for name, (sent, over) in self._memory.items()
        }
        try:
            _write_private(self._memory_path, json.dumps(kept))
        except OSError as error:
            _LOG.warning("what was sent is not remembered: reason=%s", error)


def _read_memory(path: Path) -> dict[str, RememberedChannel]:
    """Return what the controllers before have sent; empty if that is not known."""
    try:
        found = json.loads(path.read_bytes())
        return {
            str(name): RememberedChannel(
                {key: _alert(key, *sent) for key, sent in each["sent"].items()},
                set(map(str, each["over"])),
            )
            for name, each in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("what was sent before is not known: path=%s reason=%s", path, error)
        return {}


def _alert(key: str, severity: AlertSeverity, title: str) -> Alert:
    severity_rank(severity)  # an unknown one raises ValueError
    return Alert(key, severity, title)


def _write_private(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)

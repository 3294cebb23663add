"""Messages reach a real web server through apprise; one that fails harms nothing, and is told."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from controller.alerts import notifier
from controller.alerts.message_texts import MessageText
from controller.alerts.notifier import MEMORY_NAME, Notifier
from controller.alerts.notify_tables import NotifyChannel
from controller.alerts.sending import send, without_secrets
from controller.api.views import ClusterView
from tests.fakes import cluster_views
from tests.fakes.node import until
from tests.fakes.webhooks import Webhook, webhook

MESSAGE = MessageText("a title", "two\nlines <b>&</b>", "warning")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "_LOOK_S", 0.02)
    monkeypatch.setattr(notifier, "_PAUSES_S", (0.05,))


@dataclass
class Told:
    """A cluster whose view and channels a test changes, under a notifier."""

    directory: Path
    channels: tuple[NotifyChannel, ...]
    view: ClusterView = field(default_factory=cluster_views.calm)
    notes: list[str] = field(default_factory=list)

    def show(self, view: ClusterView) -> None:
        self.view = view

    def _tick(self) -> ClusterView:
        # A look each 20 ms stands for one each second.
        self.view = self.view.model_copy(update={"now": self.view.now + 1.0})
        return self.view

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        people = Notifier(
            Path("/etc/unicron/my cluster.toml"),
            self.directory,
            self._tick,
            lambda: self.channels,
            lambda text, is_warning: self.notes.append(f"{'!' if is_warning else ''}{text}"),
        )
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            serving = group.create_task(people.run())
            try:
                yield
            finally:
                serving.cancel()


def channel(hook: Webhook, name: str = "hook") -> NotifyChannel:
    return NotifyChannel(name, "warning", (), 20, hook.url)


async def test_apprise_sends_to_a_web_server(hook: Webhook) -> None:
    assert await send(hook.url, MESSAGE) == ""
    (body,) = hook.received
    assert (body["title"], body["message"], body["type"]) == (
        "a title", "two\nlines <b>&</b>", "warning",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "nonsense://s3cretpath",
            "apprise can't use this nonsense:// URL: see https://appriseit.com",
        ),
        ("json://127.0.0.1:1/s3cretpath", "..."),
    ],
)
async def test_what_can_not_be_sent_is_one_line_without_the_secret(url: str, reason: str) -> None:
    problem = await send(url, MESSAGE)
    assert reason in problem
    assert "s3cretpath" not in problem
    assert problem.isprintable()


async def test_a_service_that_refuses_says_so(hook: Webhook) -> None:
    hook.status = 503
    problem = await send(hook.url, MESSAGE)
    assert "503" in problem
    assert "s3cretpath" not in problem


async def test_a_service_that_hangs_is_given_up(hook: Webhook) -> None:
    hook.delay_s = 2.0
    assert await send(hook.url, MESSAGE, 1.0) == "the service did not answer within 1 s"


def test_secrets_of_every_part_of_a_url_are_left_out() -> None:
    url = "mailto://user:pass%21word@mail.example.org/?to=me%40example.org&token=abcdef"
    line = without_secrets("failed for user: pass!word, abcdef at https://x.org/abcdef", url)
    assert line == "failed for ...: ..., ... at https://..."


async def test_a_lost_node_is_told_with_the_commands_to_type_and_once(
    hook: Webhook, tmp_path: Path
) -> None:
    told = Told(tmp_path, (channel(hook),))
    async with told.served():
        told.show(cluster_views.waiting())
        await until(lambda: hook.received, "a message")
        told.show(cluster_views.healed())
        await until(lambda: len(hook.received) >= 2, "that it is over")
    assert hook.titles[0] == "[unicron demo] plan P-2:1 waits for an approval (and 2 more)"
    assert hook.received[0]["type"] == "failure"
    assert "unicron approve P-2:1 --cluster '/etc/unicron/my cluster.toml'" in hook.text
    assert "INC-2 SEV1 lost connection on gpt-b, n4 is over" in hook.text
    assert "INC-1" not in hook.text, "it was over before the first look"
    assert len(hook.received) == 2


async def test_the_next_controller_repeats_nothing(hook: Webhook, tmp_path: Path) -> None:
    told = Told(tmp_path, (channel(hook),), cluster_views.waiting())
    memory = tmp_path / MEMORY_NAME
    async with told.served():
        await until(memory.exists, "the memory")
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert "s3cretpath" not in memory.read_text()
    async with told.served():
        await asyncio.sleep(0.5)
        assert len(hook.received) == 1
        told.show(cluster_views.healed())
        await until(lambda: len(hook.received) == 2, "that it is over")
    assert "over: plan P-2:1 waits for an approval" in hook.text


async def test_what_one_channel_could_not_send_is_not_saved_as_sent_by_another(
    hook: Webhook, tmp_path: Path
) -> None:
    def saved(name: str) -> dict[str, object]:
        found = json.loads((tmp_path / MEMORY_NAME).read_text())[name]["sent"]
        return dict(found)

    with webhook() as broken:
        told = Told(tmp_path, (channel(hook), channel(broken, "broken")), cluster_views.waiting())
        async with told.served():
            await until((tmp_path / MEMORY_NAME).exists, "a memory")
            await until(lambda: len(hook.received) + len(broken.received) == 2, "both know")
            await until(lambda: "broken" in (tmp_path / MEMORY_NAME).read_text(), "both")
            await until(lambda: "hook" in (tmp_path / MEMORY_NAME).read_text(), "both")
        # The next controller: one node more is isolated, and one of the channels fails.
        broken.status = 500
        nodes = told.view.nodes
        worse = nodes[0].model_copy(update={"isolated": "INC-7: GPU lost"})
        told.show(told.view.model_copy(update={"nodes": [worse, *nodes[1:]]}))
        async with told.served():
            await until(lambda: broken.refused, "one has failed")
            await until(lambda: "isolated n1" in saved("hook"), "the other one knows of it")
        assert "isolated n1" not in saved("broken")


@pytest.mark.parametrize(
    "damage", ["", "{", '{"hook": {}}', '{"hook": {"sent": {"x": ["?", "y"]}}}']
)
async def test_a_damaged_memory_is_no_memory(hook: Webhook, tmp_path: Path, damage: str) -> None:
    (tmp_path / MEMORY_NAME).write_text(damage)
    told = Told(tmp_path, (channel(hook),), cluster_views.waiting())
    async with told.served():
        await until(lambda: damage != (tmp_path / MEMORY_NAME).read_text(), "a new memory")
    assert len(hook.received) == 1
    assert json.loads((tmp_path / MEMORY_NAME).read_text())["hook"]["sent"]


async def test_a_channel_that_fails_is_announced_and_told_to_the_others(
    hook: Webhook, tmp_path: Path
) -> None:
    with webhook() as broken:
        broken.status = 500
        told = Told(tmp_path, (channel(hook), channel(broken, "broken")))
        async with told.served():
            told.show(cluster_views.waiting())
            await until(lambda: broken.refused >= 3, "tries again and again")
            await until(lambda: "channel broken can't be reached" in hook.text, "the others know")
            broken.status = 200
            await until(lambda: broken.received, "the message, at last")
            await until(lambda: "over: channel broken" in hook.text, "that it works again")
    assert len(broken.received) == 1
    assert len(told.notes) == 2, told.notes
    assert told.notes[0].startswith("!channel broken can't be reached: ")
    assert told.notes[1] == "channel broken works again"
    assert "unicron notify broken --test" in hook.text


async def test_a_channel_that_hangs_delays_no_other(
    hook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhook() as slow:
        slow.delay_s = 3.0
        told = Told(tmp_path, (channel(slow, "slow"), channel(hook)))
        async with told.served():
            told.show(cluster_views.waiting())
            await until(lambda: hook.received, "a message")
            assert not slow.received


async def test_channels_change_while_it_runs(hook: Webhook, tmp_path: Path) -> None:
    told = Told(tmp_path, (), cluster_views.waiting())
    async with told.served():
        await asyncio.sleep(0.1)
        told.channels = (channel(hook),)
        await until((tmp_path / MEMORY_NAME).exists, "the memory of a message")
        told.channels = (replace(channel(hook), severity="info"),)
        told.show(cluster_views.healed())
        await until(lambda: "is over" in hook.text, "the channel is still the same one")


async def test_a_url_is_read_from_its_file_at_each_message(hook: Webhook, tmp_path: Path) -> None:
    secret = tmp_path / "hook.url"
    told = Told(tmp_path, (replace(channel(hook), url="", url_file=secret),))
    async with told.served():
        told.show(cluster_views.waiting())
        await until(lambda: told.notes, "that the file is not there")
        assert told.notes[0].endswith("hook.url: no such file or directory; it is tried again")
        secret.write_text(f"{hook.url}\n# the team's\n")
        await until(lambda: hook.received, "a message")

"""``unicron notify`` and ``alerts``: channels are listed and tried, and alerts are shown."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli import main
from tests.fakes.node import until
from tests.fakes.served_clusters import command, served, with_a_waiting_plan
from tests.fakes.webhooks import Webhook, webhook

Capture = pytest.CaptureFixture[str]

CLUSTER = """
[cluster]
name = "demo"
checkpoint_dir = "/ckpt"
run_dir = "run"
[ssh]
identity = "key"
host_key = "ssh-ed25519 AAAA"
[[nodes]]
hosts = "n1"
workers = 1
[[task]]
name = "run"
weight = 1.0
workers = 1
min_workers = 1
[task.command]
argv = ["true"]
[task.throughput]
points = [{ workers = 1, flops_per_s = 3.0e9, layout = { dp = 1 } }]
"""


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served_hook:
        yield served_hook


def write(directory: Path, channels: str) -> str:
    (directory / "key").touch()
    path = directory / "cluster.toml"
    path.write_text(CLUSTER + channels)
    return str(path)


async def notify(*words: str) -> int:
    """Run the command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(main, ["notify", *words])


async def test_a_test_message_reaches_every_channel_that_works(
    hook: Webhook, tmp_path: Path, capsys: Capture
) -> None:
    channels = f'[[notify]]\nname = "good"\nurl = "{hook.url}"\n'
    channels += '[[notify]]\nname = "bad"\nurl_file = "none.url"\n'
    path = write(tmp_path, channels)
    assert await notify("--cluster", path, "--test") == 1
    assert capsys.readouterr().out.splitlines() == [
        "good: sent",
        f"bad: {tmp_path}/none.url: no such file or directory",
    ]
    assert hook.titles == ["[unicron demo] this is a test of unicron notify"]
    assert await notify("good", "--cluster", path, "--test", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "good", "is_ok": True, "problem": ""}]
    assert await notify("none", "--cluster", path, "--test") == 4
    assert "there is no channel none: good, bad exist" in capsys.readouterr().err
    assert len(hook.received) == 2


async def test_the_list_of_channels_has_no_secrets(
    hook: Webhook, tmp_path: Path, capsys: Capture
) -> None:
    path = write(tmp_path, f'[[notify]]\nname = "hook"\nurl = "{hook.url}"\nseverity = "info"\n')
    assert await notify("--cluster", path) == 0
    shown = capsys.readouterr().out
    assert "json://..." in shown
    assert "s3cretpath" not in shown
    assert await notify("--cluster", path, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "name": "hook", "leads_to": "json://...", "severity": "info", "tasks": [],
        "most_per_hour": 20,
    }  # fmt: skip


async def test_without_channels_nobody_is_notified(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "")
    assert await notify("--cluster", path) == 0
    assert capsys.readouterr().out == f"{path} has no [[notify]] table: nobody is notified\n"
    assert await notify("--cluster", str(tmp_path / "none.toml")) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


async def test_alerts_have_the_commands_to_type(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        assert await command(tmp_path, "alerts") == 0
        assert capsys.readouterr().out == "alerts: none\n"
        plan = await with_a_waiting_plan(server)
        await until(lambda: server.view().plans, "the plan is shown")
        assert await command(tmp_path, "alerts", "--json") == 0
        alerts = json.loads(capsys.readouterr().out)
        first = next(each for each in alerts if each["key"] == f"plan {plan}:1")
        assert first["severity"] == "warning"
        assert f"unicron approve {plan}:1" in first["commands"]
        assert first["since_utc"].endswith(" UTC")
        assert await command(tmp_path, "alerts") == 0
        assert f"unicron approve {plan}:1" in capsys.readouterr().out
        assert await command(tmp_path, "alerts", "--severity", "critical", "--json") == 0
        assert json.loads(capsys.readouterr().out) == []

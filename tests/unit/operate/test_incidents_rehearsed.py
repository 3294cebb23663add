"""``unicron incidents --rehearsed`` and ``approve I-1``, against a real controller."""

import json
from pathlib import Path

import pytest

from controller.core.events import Observed
from controller.core.rules.policy import Policy
from nodeagent.protocol.findings import NodeFinding
from tests.fakes.node import until
from tests.fakes.served_clusters import NODES, command, served

Capture = pytest.CaptureFixture[str]
LOST = NodeFinding(probe="gpu", sign="gpu_lost", subject="GPU 0", text="fell off the bus")


async def test_a_rehearsed_cure_is_shown_approved_and_shown_beside_it(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path, policy=Policy(is_rehearsal=True, is_auto_heal=True)) as server:
        assert await command(tmp_path, "incidents", "--rehearsed") == 0
        assert capsys.readouterr().out == "rehearsed: none\n"
        server.post(Observed(NODES[0], 1, 0.0, LOST))
        await until(lambda: server.view().incidents, "an incident")
        assert not server.state.nodes[NODES[0]].service.isolated
        assert await command(tmp_path, "incidents", "--rehearsed", "--json") == 0
        (incident,) = json.loads(capsys.readouterr().out)
        assert (incident["id"], incident["rehearsed"]["action"]) == ("I-1", "isolate")
        assert await command(tmp_path, "incidents", "--rehearsed") == 0
        assert "it waits for an approval" in capsys.readouterr().out
        assert await command(tmp_path, "alerts", "--severity", "critical") == 0
        assert "unicron approve I-1" in capsys.readouterr().out
        assert await command(tmp_path, "approve", "I-2") == 4
        assert "there is no incident I-2" in capsys.readouterr().err
        assert await command(tmp_path, "approve", "I-1") == 0
        assert capsys.readouterr().out == "I-1: isolate is approved\n"
        assert "fell off the bus" in server.state.nodes[NODES[0]].service.isolated
        assert await command(tmp_path, "approve", "I-1") != 0
        capsys.readouterr()
        assert await command(tmp_path, "incidents", "--rehearsed") == 0
        assert "approved by" in capsys.readouterr().out
        assert await command(tmp_path, "audit", "--json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (rows[0]["verb"], rows[0]["subject"], rows[0]["code"]) == ("approve", "I-1", "ok")


async def test_without_a_rehearsal_no_incident_waits_for_an_approval(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        server.post(Observed(NODES[0], 1, 0.0, LOST))
        await until(lambda: server.view().incidents, "an incident")
        assert await command(tmp_path, "approve", "I-1") == 1
        assert "I-1 waits for no approval" in capsys.readouterr().err

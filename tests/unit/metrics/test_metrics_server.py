"""Metrics are served on a port of this machine or on a socket, and a real Prometheus takes them."""

import asyncio
import json
import re
import socket
import stat
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.metrics.metric_names import METRICS
from controller.metrics.metrics_server import MetricsAddress, MetricsSource, serve_metrics
from controller.metrics.run_counters import RunCounters
from tests.fakes import cluster_views
from tests.fakes.directories import short_directory
from tests.fakes.node import until
from tests.fakes.prometheus import free_port, program, prometheus

DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana" / "unicron.json"


class Served:
    """Metrics of the scripted cluster at an address that a test changes."""

    def __init__(self, address: MetricsAddress | None) -> None:
        self.address = address
        self.notes: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Served"]:
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            serving = group.create_task(
                serve_metrics(
                    MetricsSource(RunCounters()),
                    lambda: self.address,
                    cluster_views.waiting,
                    lambda text, is_warning: self.notes.append(
                        f"{'!' if is_warning else ''}{text}"
                    ),
                )
            )
            await until(lambda: self.notes or self.address is None, "it is served")
            try:
                yield self
            finally:
                serving.cancel()


async def fetched(port: int) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


async def test_a_port_of_this_machine_serves_the_newest_view() -> None:
    port = free_port()
    async with Served(("127.0.0.1", port)).running() as served:
        text = await fetched(port)
    assert served.notes == [f"served at http://127.0.0.1:{port}/metrics"]
    assert 'unicron_node_state{node="n4",state="lost"} 1.0' in text
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


async def test_a_socket_is_private_and_goes_away() -> None:
    with short_directory() as directory:
        path = directory / "metrics.sock"
        path.touch()  # left by a controller that was killed
        async with Served(path).running():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

            def fetch() -> bytes:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(path))
                    connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    return b"".join(iter(lambda: connection.recv(65536), b""))

            assert b"unicron_plans_pending 1.0" in await asyncio.to_thread(fetch)
        assert not path.exists()


async def test_an_address_that_is_taken_is_said_and_another_one_helps() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, other = taken.getsockname()[1], free_port()
        async with Served(("127.0.0.1", port)).running() as served:
            expected = (
                f"!http://127.0.0.1:{port}/metrics can't be listened at: Address already in use"
            )
            assert served.notes == [expected]
            served.address = ("127.0.0.1", other)
            await until(lambda: len(served.notes) == 2, "the other one is served")
            assert "unicron_build_info" in await fetched(other)
            served.address = None
            await asyncio.sleep(2.5)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", other)).close()


async def test_a_client_that_says_nothing_delays_no_other() -> None:
    port = free_port()
    async with Served(("127.0.0.1", port)).running():
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.sendall(b"GET /met")
            assert "unicron_build_info" in await fetched(port)


def checked(words: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), "check", *words],
        input=given,
        text=True,
        capture_output=True,
        check=False,
    )


async def test_promtool_finds_nothing_wrong() -> None:
    port = free_port()
    async with Served(("127.0.0.1", port)).running():
        text = await fetched(port)
    done = await asyncio.to_thread(checked, ["metrics"], text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


async def test_prometheus_scrapes_it(tmp_path: Path) -> None:
    program("prometheus")  # a skip inside the server would be an error
    port = free_port()
    async with Served(("127.0.0.1", port)).running():
        with prometheus(tmp_path, f"127.0.0.1:{port}") as running:
            found = await asyncio.to_thread(running.wait_for, "unicron_node_state == 1")
    assert found == {
        "node=n1, state=healthy": 1, "node=n2, state=healthy": 1, "node=n3, state=healthy": 1,
        "node=n4, state=lost": 1,
    }  # fmt: skip


def test_the_dashboard_asks_for_exported_metrics_only() -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text())
    known = {each.exported_name: each for each in METRICS.values()}
    known |= {f"{each.name}_bucket": each for each in METRICS.values() if each.kind == "histogram"}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [
        each["query"]["query"]
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    ]
    used = set()
    for expression in [*expressions, *queries]:
        for name, labels in re.findall(r"\b(unicron_\w+)(?:\{(.*?)\})?", expression):
            assert name in known, f"{name} is not exported: {expression}"
            used.add(known[name].name)
            for label in re.findall(r"(\w+)\s*(?:=~|!=|=)", labels):
                assert label in known[name].labels, f"{name} has no label {label}"
    assert len(expressions) > 20
    assert used >= {name for name in METRICS if "ettr" in name or "lost" in name or "node" in name}
    assert dashboard["uid"] == "unicron-overview"
    assert all(
        t["datasource"]["uid"] == "${datasource}" for p in dashboard["panels"] for t in p["targets"]
    )


def test_prometheus_takes_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text())
    rules = [
        {
            "record": f"panel:{panel['id']}:{target['refId']}",
            "expr": _without_variables(target["expr"]),
        }
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = checked(["rules", str(path)])
    assert done.returncode == 0, done.stderr


def _without_variables(expression: str) -> str:
    return (
        expression.replace("$__rate_interval", "1m").replace("$task", ".*").replace("$node", ".*")
    )

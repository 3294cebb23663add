"""A real Prometheus scraping one address, and promtool: ``.ci/unpack-package`` brings them."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.polling import wait_until

_LIMIT_S = 30.0


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; skip the test where there is none."""
    unpacked = Path(sys.prefix) / "prometheus" / "usr" / "bin" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}: make test fetches it where it can")
    return found


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    port: int

    def ask(self, expression: str) -> dict[str, float]:
        """Return the values of an instant query, by their labels as sorted text.

        There are none from a scrape that took too long until the next one: see ``wait_for``.
        """
        query = urllib.parse.urlencode({"query": expression})
        address = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: Any = json.load(answer)
        except OSError:
            return {}
        values = {}
        for each in found["data"]["result"]:
            labels = {k: v for k, v in each["metric"].items() if k not in {"job", "instance"}}
            labels.pop("__name__", None)
            text = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
            values[text] = float(each["value"][1])
        return values

    def wait_for(self, expression: str) -> dict[str, float]:
        """Wait until a query has a result, and return it."""
        return wait_until(lambda: self.ask(expression), limit_s=_LIMIT_S) or {}


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    """Scrape ``target`` (``host:port``) each half second until the block ends."""
    port = free_port()
    config = directory / "prometheus.yml"
    config.write_text(
        "global: { scrape_interval: 500ms, scrape_timeout: 500ms }\n"
        "scrape_configs:\n"
        f'  - {{ job_name: unicron, static_configs: [{{ targets: ["{target}"] }}] }}\n'
    )
    words = [
        program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={directory}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)

"""Network links of the node, from ``/sys``: Ethernet interfaces and ports of InfiniBand devices.

Only links with hardware behind them count, and bonds of such: containers come and go with links of
their own, which say nothing about the network.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.detect.link_changes import LinkReading

SYS: Final = Path("/sys")
_WORD_BYTES: Final = 4
"""InfiniBand ports count their data in units of four bytes."""


def read_links(sys: Path = SYS) -> list[LinkReading]:
    """Return a reading of every link, in the order of names."""
    return [*_interfaces(sys / "class" / "net"), *_ports(sys / "class" / "infiniband")]


def _interfaces(folder: Path) -> Iterator[LinkReading]:
    for link in _entries(folder):
        if not (link / "device").exists() and not (link / "bonding").exists():
            continue
        state = _word(link / "operstate")
        yield LinkReading(
            name=link.name,
            # An interface that is switched off refuses to show its carrier.
            is_up=_word(link / "carrier") == "1",
            num_changes=_number(link / "carrier_changes"),
            num_bytes=(_number(link / "statistics" / "rx_bytes") or 0)
            + (_number(link / "statistics" / "tx_bytes") or 0),
            state=state,
        )


def _ports(folder: Path) -> Iterator[LinkReading]:
    for device in _entries(folder):
        for port in _entries(device / "ports"):
            counters = port / "counters"
            num_words = [_number(counters / f"port_{way}_data") or 0 for way in ("rcv", "xmit")]
            state = _word(port / "state")
            yield LinkReading(
                name=f"{device.name}/{port.name}",
                is_up=state.endswith("ACTIVE"),
                num_changes=_number(counters / "link_downed"),
                num_bytes=sum(num_words) * _WORD_BYTES,
                state=state,
            )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = _word(path)
    return int(text) if text.isdigit() else None


def _word(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""

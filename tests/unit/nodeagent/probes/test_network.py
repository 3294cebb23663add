"""Links of a node, read from a directory that looks like ``/sys``."""

from pathlib import Path

from nodeagent.detect.link_changes import LinkReading
from nodeagent.probes.network import read_links
from tests.fakes.text_files import write


def make_interface(sys: Path, name: str, *, kind: str = "device", **files: str) -> None:
    folder = sys / "class/net" / name
    folder.mkdir(parents=True)
    if kind:
        (folder / kind).mkdir()
    for file, text in files.items():
        write(folder / file.replace("__", "/"), f"{text}\n")


def test_interfaces_with_hardware_and_bonds_are_read(tmp_path: Path) -> None:
    make_interface(
        tmp_path,
        "eth0",
        carrier="1",
        carrier_changes="4",
        operstate="up",
        statistics__rx_bytes="100",
        statistics__tx_bytes="20",
    )
    make_interface(tmp_path, "bond0", kind="bonding", carrier="0", operstate="down")
    for name in ("lo", "veth12", "docker0"):
        make_interface(tmp_path, name, kind="", carrier="1", operstate="up")
    assert read_links(tmp_path) == [
        LinkReading("bond0", is_up=False, num_changes=None, num_bytes=0, state="down"),
        LinkReading("eth0", is_up=True, num_changes=4, num_bytes=120, state="up"),
    ]


def test_interface_that_is_switched_off_tells_no_carrier(tmp_path: Path) -> None:
    make_interface(tmp_path, "eth1", operstate="down", carrier_changes="1")
    (reading,) = read_links(tmp_path)
    assert not reading.is_up


def test_ports_of_infiniband_devices_are_read(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    write(port / "state", "4: ACTIVE\n")
    write(port / "counters/link_downed", "2\n")
    write(port / "counters/port_rcv_data", "25\n")
    write(port / "counters/port_xmit_data", "75\n")
    assert read_links(tmp_path) == [
        LinkReading("mlx5_0/1", is_up=True, num_changes=2, num_bytes=400, state="4: ACTIVE")
    ]
    write(port / "state", "1: DOWN\n")
    assert not read_links(tmp_path)[0].is_up


def test_machine_without_links_has_none(tmp_path: Path) -> None:
    assert read_links(tmp_path) == []

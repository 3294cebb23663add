"""Whether ranks find out that they do not see one directory."""

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from profiles.layout import Layout
from tests.fakes.polling import wait_until

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]
TWO = Layout(tp=1, pp=1, dp=2)


class SharedStore:
    """The rendezvous store of two ranks in one process; rank 0 comes first."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return set(keys) <= self._values.keys()


class Look:
    """Two ranks, each with a directory, and a clock."""

    def __init__(self, first: Path | None, second: Path | None) -> None:
        self.now = 0.0
        store = SharedStore()
        self.first, self.second = (self._of(rank, store, (first, second)[rank]) for rank in (0, 1))

    def _of(self, rank: int, store: SharedStore, path: Path | None) -> Any:  # noqa: ANN401
        place = import_module("nodeagent.rank.groups.rank_place").Place(
            rank, TWO, import_module("torch").device("cpu")
        )
        module = import_module("nodeagent.rank.checkpoint.shared_directory")
        return module.SharedDirectory(path, place, store, lambda: self.now)


def test_a_directory_that_both_see_is_shared_and_keeps_no_marker(tmp_path: Path) -> None:
    look = Look(tmp_path / "c", tmp_path / "c")
    assert look.first.run == look.second.run
    assert not look.second.is_known
    assert look.second.why_not() == look.first.why_not() == ""
    assert look.second.is_known
    look.first.confirm()
    assert list((tmp_path / "c").iterdir()) == []


def test_another_directory_is_found_by_its_rank_and_known_to_rank_0(tmp_path: Path) -> None:
    look = Look(tmp_path / "a", tmp_path / "b")
    assert look.first.why_not() == "", "the other one has not looked yet"
    assert f"rank 1 does not see what rank 0 writes to {tmp_path}/b" in look.second.why_not()
    wait_until(lambda: look.first.why_not() == look.second.why_not(), limit_s=10)
    wait_until(lambda: look.second.is_known, limit_s=10)


def test_training_does_not_wait_for_a_store_that_is_out_of_contact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Look(tmp_path / "a", tmp_path / "b")
    is_back = threading.Event()
    for operation in ("set", "check"):
        whole = getattr(SharedStore, operation)

        def late(store: SharedStore, *words: Any, whole: Any = whole) -> Any:  # noqa: ANN401
            is_back.wait()
            return whole(store, *words)

        monkeypatch.setattr(SharedStore, operation, late)
    try:
        assert "does not see" in look.second.why_not()
        assert not look.second.is_known, "rank 0 does not know it yet: this rank may not end"
        for _ in range(3):
            assert look.first.why_not() == ""
    finally:
        is_back.set()
    wait_until(lambda: look.second.is_known, limit_s=10)
    wait_until(lambda: look.first.why_not() == look.second.why_not(), limit_s=10)


def test_on_a_network_file_system_a_marker_may_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("nodeagent.rank.checkpoint.shared_directory")
    monkeypatch.setattr(module, "read_is_on_network", lambda _path: True)
    look = Look(tmp_path / "a", tmp_path / "b")
    look.now = 59.0
    assert look.second.why_not() == ""
    assert not look.second.is_known
    look.now = 61.0
    assert "name one that all nodes share" in look.second.why_not().lower()


def test_without_a_directory_or_a_marker_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (None, tmp_path / "file" / "c"):
        look = Look(path, path)
        assert look.second.is_known
        assert look.second.why_not() == look.first.why_not() == ""

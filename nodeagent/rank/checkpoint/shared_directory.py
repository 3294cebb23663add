"""Whether all ranks of a generation see the same checkpoint directory.

Global rank 0 puts a marker there before it publishes the word of the run. A rank that does not find
the marker at a save has another directory at that path, and says so in the rendezvous store. Then
no checkpoint could be completed: rank 0 would wait for parts that it never sees.

The store is the controller's, and training must not wait for a controller: after the generation has
formed, only a thread of its own uses the store here.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from nodeagent.process_tools.socket_places import read_is_on_network
from nodeagent.rank.checkpoint.loading import KeyValueStore, value_of_rank_0
from nodeagent.rank.groups.rank_place import Place

_RUN_KEY: Final = "checkpoint/run"
_UNSHARED_KEY: Final = "checkpoint/unshared"
_MARKER: Final = ".run-"
_MARKED: Final = "+"
_LATE_S: Final = 60.0
"""A network file system may show a new file to other nodes only after this time."""


class WatchedStore(KeyValueStore, Protocol):
    """A store that can also say whether a key is there."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there, without waiting."""


class SharedDirectory:
    """One rank's look at the checkpoint directory. All ranks make one, at the same time.

    Args:
        path: The directory; None if the task has none.
        place: The rank's place in the layout.
        store: The rendezvous store of the generation.
        monotonic_s: The clock.

    Attributes:
        run: A random word that marks the files of this generation's ranks.
    """

    def __init__(
        self, path: Path | None, place: Place, store: WatchedStore, monotonic_s: Callable[[], float]
    ) -> None:
        self._path, self._rank, self._store = path or Path(), place.global_rank, store
        self._monotonic_s = monotonic_s
        word = secrets.token_hex(8)
        if self._rank == 0 and path is not None and self._mark(word):
            word += _MARKED
        agreed = value_of_rank_0(place, store, _RUN_KEY, word)
        self.run = agreed.removesuffix(_MARKED)
        self._agreed_s = monotonic_s()
        self._is_known = not agreed.endswith(_MARKED)
        self._reason = ""
        self._in_store: threading.Thread | None = None

    @property
    def is_known(self) -> bool:
        """Whether this rank has found out, and said it. Global rank 0 leaves it to the others."""
        return self._rank == 0 or (self._is_known and not self._is_in_store)

    @property
    def _is_in_store(self) -> bool:
        return self._in_store is not None and self._in_store.is_alive()

    def why_not(self) -> str:
        """Return why no checkpoint can be completed; empty if that is not known."""
        if self._rank == 0:
            if not self._reason and not self._is_known:
                self._begin(self._read_reason)
        elif not self._is_known:
            self._look()
        return self._reason

    def confirm(self) -> None:
        """A checkpoint is complete, so the directory is shared: the marker has done its work."""
        self._is_known = True
        with contextlib.suppress(OSError):
            (self._path / f"{_MARKER}{self.run}").unlink(missing_ok=True)

    def _mark(self, word: str) -> bool:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            for old in self._path.glob(f"{_MARKER}*"):
                old.unlink(missing_ok=True)
            (self._path / f"{_MARKER}{word}").touch()
        except OSError:
            return False  # the save will say what is wrong there
        return True

    def _look(self) -> None:
        is_there = f"{_MARKER}{self.run}" in _names_in(self._path)
        is_late = self._monotonic_s() - self._agreed_s < _LATE_S and read_is_on_network(self._path)
        if not is_there and is_late:
            return
        self._is_known = True
        if not is_there:
            self._reason = (
                f"rank {self._rank} does not see what rank 0 writes to {self._path}: its node has another"
                " directory there. Name one that all nodes share as checkpoint_dir; until then only"
                " copies in the memory of other nodes protect the training"
            )
            self._begin(lambda: self._store.set(_UNSHARED_KEY, self._reason))

    def _begin(self, use_store: Callable[[], None]) -> None:
        """Use the store in a thread, unless one does so already."""

        def use() -> None:
            # The generation has ended, and its store with it: the next one looks again.
            with contextlib.suppress(RuntimeError):
                use_store()

        if not self._is_in_store:
            self._in_store = threading.Thread(target=use, name="shared-directory", daemon=True)
            self._in_store.start()

    def _read_reason(self) -> None:
        if self._store.check([_UNSHARED_KEY]):
            self._reason = bytes(self._store.get(_UNSHARED_KEY)).decode()


def _names_in(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.iterdir()]
    except OSError:
        return []

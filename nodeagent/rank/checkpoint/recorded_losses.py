"""Losses of the newest iterations on disk, for comparison after a load.

A checkpoint can be intact and yet wrong, for instance because memory was corrupt when it was saved.
So the losses after a load are compared with the recorded losses of the same iterations. Only losses
with the same settings are compared: a new learning rate or data set makes no checkpoint look bad.
"""

import contextlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "losses.jsonl"
NUM_COMPARED: Final = 8
"""Largest number of iterations that are compared after a load."""


@dataclass(frozen=True, slots=True)
class RecordedLosses:
    """The file with the losses of a task. Only losses with the same ``settings`` are returned."""

    directory: Path
    settings: str

    def append(self, iteration: int, loss: float) -> None:
        """Add a line, if the loss is finite.

        Raises:
            OSError: The file can't be written.
        """
        if not math.isfinite(loss):
            return
        line = {"iteration": iteration, "loss": loss, "settings": self.settings}
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def after(self, iteration: int) -> dict[int, float]:
        """Return the losses of the first iterations after ``iteration``.

        If an iteration ran several times, the first loss counts: the others came after a load.
        """
        losses: dict[int, float] = {}
        for recorded, settings, loss in self._lines():
            if settings == self.settings and iteration < recorded <= iteration + NUM_COMPARED:
                losses.setdefault(recorded, loss)
        return losses

    def forget_until(self, iteration: int) -> None:
        """Drop the losses up to ``iteration``, which no kept checkpoint needs.

        Raises:
            OSError: The file can't be written.
        """
        lines = [
            json.dumps({"iteration": recorded, "loss": loss, "settings": settings}) + "\n"
            for recorded, settings, loss in self._lines()
            if recorded > iteration
        ]
        scratch = self._path.with_suffix(".new")
        scratch.write_text("".join(lines))
        scratch.replace(self._path)

    @property
    def _path(self) -> Path:
        return self.directory / FILE

    def _lines(self) -> list[tuple[int, str, float]]:
        try:
            text = self._path.read_text(errors="replace")
        except OSError:
            return []
        lines: list[tuple[int, str, float]] = []
        for line in text.splitlines():
            # The writer may have been killed in the middle of a line.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                lines.append((int(entry["iteration"]), entry["settings"], float(entry["loss"])))
        return lines

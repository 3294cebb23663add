"""Measures checkpoints on disk while a model trains on real ranks, and prints one JSON object.

    python benchmarks/disk_checkpoint_cost.py [--windows N] [--hidden-size H] [--layers L]
        [--write-docs]

Windows of 50 iterations with one checkpoint alternate with windows without. Figures, seconds unless
said otherwise:

- ``iteration``: median of the iterations in windows without a checkpoint;
- ``blocked``, ``blocked_worst``, ``blocked_first``: how long ``save`` kept the training thread of
  the slowest rank: median, worst, and the first one, which allocates the memory for the copy;
- ``blocked_percent``: of the 50 iterations between two checkpoints;
- ``window_ratio``: median over neighbouring pairs of windows, with a checkpoint to without: all
  that a checkpoint costs, the thread that writes included;
- ``background``: from the iteration boundary until the checkpoint is complete on disk;
- ``load_same``, ``load_other``: loading in the same layout, and in the one named.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch  # noqa: TID253
from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: TID253
from paired.ranks import Seat, run_ranks
from torch import distributed  # noqa: TID253

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.rank.checkpoint import Checkpoints
from nodeagent.rank.checkpoint.shared_directory import WatchedStore
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.gpt import build_model, build_optimizer
from nodeagent.rank.program.micro_batches import MicroBatches
from profiles.layout import Layout
from profiles.model import ModelShape

WINDOW = 50
CASES = ((Layout(dp=2), Layout(tp=2)), (Layout(tp=2), Layout(pp=2)))


def main() -> None:
    """Measure each layout and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=6, metavar="N", help="pairs (default 6)")
    parser.add_argument("--hidden-size", type=int, default=256, metavar="H")
    parser.add_argument("--layers", type=int, default=4, metavar="L")
    parser.add_argument("--seq-length", type=int, default=64, metavar="S")
    parser.add_argument("--write-docs", action="store_true", help="update docs/measurements.md")
    arguments = parser.parse_args()
    shape = ModelShape(
        num_layers=arguments.layers,
        hidden_size=arguments.hidden_size,
        num_attention_heads=4,
        seq_length=arguments.seq_length,
    )
    report: dict[str, Any] = {
        **machine(),
        "command": command_line(),
        "model": shape.model_dump(),
        "windows": arguments.windows,
    }
    report["layouts"] = [measure(shape, *case, arguments.windows) for case in CASES]
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results("disk_checkpoint_cost", report)
        write_section(MEASUREMENTS, "disk_checkpoint_cost", _section(report))


def measure(shape: ModelShape, layout: Layout, other: Layout, num_windows: int) -> dict[str, Any]:
    """Train and save on ``layout``, load there and on ``other``."""
    with tempfile.TemporaryDirectory() as directory:
        training = TrainingSpec(
            model=shape, checkpoint_dir=f"{directory}/checkpoints", num_micro_batches=4
        )
        trained = _run(training, layout, 1, lambda rank: rank.train(num_windows))
        same = _run(training, layout, 2, lambda rank: rank.load())
        elsewhere = _run(training, other, 3, lambda rank: rank.load())
    first = trained[0]
    blocked = [max(times) for times in zip(*(one["blocked"] for one in trained), strict=True)]
    iteration_s = statistics.median(first["plain_iterations"])
    pairs = zip(first["windows_with"], first["windows_without"], strict=True)
    blocked_s = statistics.median(blocked[1:])
    return {
        "layout": str(layout),
        "parameters": first["parameters"],
        "bytes": first["bytes"],
        "iteration": round(iteration_s, 4),
        "blocked": round(blocked_s, 5),
        "blocked_worst": round(max(blocked[1:]), 5),
        "blocked_first": round(blocked[0], 5),
        "blocked_percent": round(100 * blocked_s / (WINDOW * iteration_s), 3),
        "window_ratio": round(statistics.median(a / b for a, b in pairs), 4),
        "background": round(statistics.median(first["background"]), 4),
        "load_same": round(max(one["load"] for one in same), 4),
        "other": str(other),
        "load_other": round(max(one["load"] for one in elsewhere), 4),
    }


def _run(
    training: TrainingSpec,
    layout: Layout,
    generation: int,
    run: Callable[["CheckpointedRank"], Any],
) -> list[Any]:
    """Run the ranks of a generation and return what ``run`` returned on each."""

    def run_rank(seat: Seat) -> object:
        launch = RankLaunch(
            task=TaskId("benchmark"),
            generation=Generation(generation),
            global_rank=seat.place.global_rank,
            worker=seat.place.global_rank,
            layout=layout,
            training=training,
        )
        return run(CheckpointedRank(training, seat.place, launch, seat.store))

    return run_ranks(layout, training.seed, run_rank)


class CheckpointedRank:
    """One rank that trains with Megatron's schedule and its own reduction."""

    def __init__(
        self, training: TrainingSpec, place: Place, launch: RankLaunch, store: WatchedStore
    ) -> None:
        self._training = training
        self._place = place
        self._store = store
        self._micro_batches = MicroBatches(training, place.device)
        self._model: Any = build_model(training.model, place, training.seed)
        self._optimizer: Any = build_optimizer(self._model, training.learning_rate)
        self._checkpoints = Checkpoints(launch, place, lambda: False)
        self._iteration = 0

    def train(self, num_windows: int) -> dict[str, Any]:
        """Train pairs of windows, and return the times."""
        times: dict[str, Any] = {"windows_with": [], "windows_without": [], "plain_iterations": []}
        blocked: list[float] = []
        self._window(None)  # to warm up
        for _ in range(num_windows):
            distributed.barrier()
            times["windows_with"].append(self._window(blocked))
            self._checkpoints.wait(60)
            distributed.barrier()
            began = time.perf_counter()
            for _ in range(WINDOW):
                times["plain_iterations"].append(self._iterate())
            times["windows_without"].append(time.perf_counter() - began)
        saved = self._checkpoints.finished()
        return {
            **times,
            "blocked": blocked,
            "background": [one.duration_s for one in saved],
            "bytes": saved[-1].num_bytes if saved else 0,
            "parameters": sum(parameter.numel() for parameter in self._model.parameters()),
        }

    def load(self) -> dict[str, Any]:
        """Load, and return the time."""
        distributed.barrier()
        began = time.perf_counter()
        if not self._checkpoints.load(self._model, self._optimizer, self._store):
            raise RuntimeError("nothing was loaded")
        return {"load": time.perf_counter() - began}

    def _window(self, blocked: list[float] | None) -> float:
        began = time.perf_counter()
        for number in range(WINDOW):
            self._iterate()
            if blocked is not None and number == 0:
                at = time.perf_counter()
                self._checkpoints.save(self._iteration, 1.0, self._model, self._optimizer)
                blocked.append(time.perf_counter() - at)
        return time.perf_counter() - began

    def _iterate(self) -> float:
        began = time.perf_counter()
        self._iteration += 1
        num_local = self._training.num_micro_batches // self._place.layout.dp
        first = self._place.dp_rank * num_local
        self._model.zero_grad_buffer()
        self._optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=self._forward_step,
            data_iterator=iter(range(first, first + num_local)),
            model=self._model,
            num_microbatches=num_local,
            seq_length=self._training.model.seq_length,
            micro_batch_size=self._training.micro_batch_size,
            forward_only=False,
        )
        self._model.finish_grad_sync()
        # Scaled as the loop does, so that the numbers stay those of a model that trains.
        num_tokens = self._training.num_micro_batches * self._training.model.seq_length
        self._model.scale_gradients(1 / num_tokens)
        self._optimizer.step()
        return time.perf_counter() - began

    def _forward_step(
        self, indices: Iterator[int], model: torch.nn.Module
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
        batch = self._micro_batches.get(self._iteration, next(indices))
        return model(batch.tokens, batch.position_ids, None, labels=batch.labels), sum_of_losses


def sum_of_losses(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what Megatron's schedule asks of a loss function."""
    loss = loss_per_token.sum()
    return loss, torch.tensor(loss_per_token.numel(), dtype=torch.int), loss.detach().clone()


def _section(report: dict[str, Any]) -> str:
    shape, rows = report["model"], "\n".join(map(_row, report["layouts"]))
    return f"""\
{machine_line(report)} {shape["num_layers"]} layers, hidden size {shape["hidden_size"]}; windows of {WINDOW} iterations.

    {report["command"]}

| layout | parameters per rank | one iteration, ms | training blocked, ms | of {WINDOW} iterations | windows with a checkpoint to those without | complete on disk after, s | loading, s | loading as, s |
|---|---|---|---|---|---|---|---|---|
{rows}"""


def _row(found: dict[str, Any]) -> str:
    return (
        f"| {found['layout']} | {found['parameters']:,} | {1000 * found['iteration']:.1f}"
        f" | {1000 * found['blocked']:.1f} (worst {1000 * found['blocked_worst']:.1f},"
        f" first {1000 * found['blocked_first']:.1f}) | **{found['blocked_percent']:.2f} %**"
        f" | {found['window_ratio']:.3f} | {found['background']:.2f} | {found['load_same']:.2f}"
        f" | {found['other']}: {found['load_other']:.2f} |"
    )


if __name__ == "__main__":
    main()

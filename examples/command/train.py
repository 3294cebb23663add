"""A training program that torchrun could start, and knows nothing of Unicron.

    torchrun --nproc-per-node 2 train.py --iterations 200

Plain data parallelism over gloo on a small model. It saves a checkpoint every few iterations and on
SIGTERM, goes on from the newest one, and prints Megatron-LM's line after each iteration.
"""

import argparse
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional

BATCH_SIZE = 16
NUM_CLASSES = 10


def main() -> None:
    """Train to the last iteration, or until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--save-interval", type=int, default=5)
    parser.add_argument("--iteration-s", type=float, default=0.1, help="shortest time of one")
    parser.add_argument("--save", default=os.environ.get("UNICRON_TASK_DIR", "checkpoints"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")  # from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    stop = Stop()
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    checkpoint = Path(options.save) / "newest.pt"
    done = load(checkpoint, model, optimizer)
    for iteration in range(done + 1, options.iterations + 1):
        began = time.perf_counter()
        loss, grad_norm = train_step(model, optimizer, iteration)
        time.sleep(max(0.0, options.iteration_s - (time.perf_counter() - began)))
        is_stopping = stop.is_wanted_by_any()
        if iteration % options.save_interval == 0 or is_stopping:
            save(checkpoint, model, optimizer, iteration)
        log(iteration, options.iterations, time.perf_counter() - began, loss, grad_norm)
        if is_stopping:
            break
    distributed.destroy_process_group()


class Stop:
    """Remembers a SIGTERM, as Megatron-LM does with ``--exit-signal-handler``."""

    def __init__(self) -> None:
        self._is_wanted = False
        signal.signal(signal.SIGTERM, self._note)

    def is_wanted_by_any(self) -> bool:
        """Return whether any rank got a signal to stop. All ranks get the same answer."""
        wanted = torch.tensor(int(self._is_wanted))
        distributed.all_reduce(wanted, distributed.ReduceOp.MAX)
        return bool(wanted)

    def _note(self, *_: object) -> None:
        self._is_wanted = True


def build_model() -> nn.Module:
    """Return the model, with the same weights on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, NUM_CLASSES))


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int
) -> tuple[float, float]:
    """Do one iteration; return the mean loss and the norm of the gradient."""
    inputs, labels = batch(iteration)
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(inputs), labels)
    loss.backward()
    for parameter in model.parameters():
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean_loss = loss.detach().clone()
    distributed.all_reduce(mean_loss)
    return float(mean_loss) / distributed.get_world_size(), float(grad_norm)


def batch(iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's samples: a function of iteration and rank, so that it can be repeated."""
    draw = torch.Generator().manual_seed(iteration * 1000 + distributed.get_rank())
    inputs = torch.randn(BATCH_SIZE, 32, generator=draw)
    return inputs, inputs[:, :NUM_CLASSES].argmax(dim=1)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    """Save everything that the next process needs, in one step."""
    if distributed.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".tmp")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"iteration": iteration}, scratch)
        scratch.replace(path)
    distributed.barrier()


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint, if there is one; return its iteration."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["iteration"])


def log(iteration: int, last: int, seconds: float, loss: float, grad_norm: float) -> None:
    """Print Megatron-LM's line, on the last rank as it does."""
    if distributed.get_rank() == distributed.get_world_size() - 1:
        batch_size = BATCH_SIZE * distributed.get_world_size()
        print(  # noqa: T201 - this is its log
            f" [{datetime.now():%Y-%m-%d %H:%M:%S}] iteration {iteration:8d}/{last:8d} |"  # noqa: DTZ005, TID251
            f" consumed samples: {iteration * batch_size:12d} |"
            f" elapsed time per iteration (ms): {seconds * 1000:.1f} |"
            f" global batch size: {batch_size:5d} | lm loss: {loss:.6E} |"
            f" grad norm: {grad_norm:.3f} | number of nan iterations:   0 |",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""A loop of one's own with Lightning's Fabric, which knows nothing of Unicron.

    torchrun --nproc_per_node=2 train.py --max_steps 200

Healing needs a line per step, for which ``tasks.toml`` has the pattern, ``fabric.save`` to another
name with a rename after it, and ``fabric.load`` where there is a checkpoint. The batch is a
function of the step and the rank, so the data goes on where the checkpoint was saved.
``devices`` and ``num_nodes`` must be those of the environment.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 32


def main() -> None:
    """Train to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--save_steps", type=int, default=5)
    parser.add_argument("--out_dir", default=os.environ.get("UNICRON_TASK_DIR", "out"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    fabric = lightning.Fabric(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    )
    fabric.launch()
    fabric.seed_everything(1)
    layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))
    model, optimizer = fabric.setup(layers, torch.optim.Adam(layers.parameters(), lr=1e-2))
    path = Path(options.out_dir) / "newest.ckpt"
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "step": 0}
    if path.exists():
        fabric.load(path, state)
    while state["step"] < options.max_steps:
        began = time.perf_counter()
        inputs = batch(state["step"], fabric.global_rank)
        loss = functional.mse_loss(model(inputs), inputs.flip(1))
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        state["step"] += 1
        if state["step"] % options.save_steps == 0:
            save(fabric, path, state)
        time.sleep(0.1)  # slows a toy down, so that one can watch
        time_ms = (time.perf_counter() - began) * 1000
        if fabric.is_global_zero:  # fabric.print prints on each node
            print(  # noqa: T201 - this is its log
                f"step {state['step']} | loss {loss.item():.4f} | {time_ms:.1f} ms", flush=True
            )


def batch(step: int, rank: int) -> Tensor:
    """Return the inputs of one rank in one step."""
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step * 1000 + rank))


def save(fabric: lightning.Fabric, path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint in one step: a process killed meanwhile leaves the older one."""
    scratch = path.with_suffix(".tmp")
    fabric.save(scratch, state)
    if fabric.is_global_zero:
        scratch.replace(path)


if __name__ == "__main__":
    main()

"""Plain PyTorch with two lines for Unicron, marked below; it runs without it just as well.

    torchrun --nproc-per-node 2 train.py --iterations 200

Everything else is the program's own: how it meets its peers, what it trains, when it saves.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from nodeagent.public import attach  # of the distribution ``unicron``; doesn't import torch

NUM_TOKENS = 256


def main() -> None:
    """Train to the last iteration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--save-interval", type=int, default=5)
    parser.add_argument("--iteration-s", type=float, default=0.1, help="shortest time of one")
    parser.add_argument("--save", default=os.environ.get("UNICRON_TASK_DIR", "checkpoints"))
    options = parser.parse_args()
    monitor = attach()  # the first line
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    checkpoint = Path(options.save) / "newest.pt"
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        done = int(state["iteration"])
    for iteration in range(done + 1, options.iterations + 1):
        time.sleep(options.iteration_s)
        draw = torch.Generator().manual_seed(iteration * 1000 + distributed.get_rank())
        inputs = torch.randn(NUM_TOKENS, 64, generator=draw)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        if iteration % options.save_interval == 0 and distributed.get_rank() == 0:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            scratch = checkpoint.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "iteration": iteration}, scratch)
            scratch.replace(checkpoint)
        num_tokens = NUM_TOKENS * distributed.get_world_size()
        monitor.iteration(iteration, loss=loss, num_tokens=num_tokens)  # the second line
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

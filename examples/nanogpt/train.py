"""A training script in the manner of nanoGPT, which knows nothing of Unicron.

    torchrun --nproc_per_node=2 train.py --init_from=resume --max_iters=200

Healing needs three parts of it: the line ``iter N: loss ...`` after each iteration, ``ckpt.pt``
written by rename, and ``--init_from=resume``, which starts anew where no checkpoint is. The
checkpoint counts its iterations, and the batch is a function of that count and the rank. So the
losses after a restart are those of a run that nothing disturbs.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

NUM_CHARACTERS = 65
BLOCK_SIZE = 32
BATCH_SIZE = 8
WIDTH = 32


class TinyGPT(nn.Module):
    """One transformer block between two embeddings and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(NUM_CHARACTERS, WIDTH)
        self.positions = nn.Embedding(BLOCK_SIZE, WIDTH)
        self.block = nn.TransformerEncoderLayer(
            WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, NUM_CHARACTERS)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss."""
        hidden = self.characters(inputs) + self.positions.weight
        causal = nn.Transformer.generate_square_subsequent_mask(BLOCK_SIZE)
        logits = self.head(self.block(hidden, src_mask=causal, is_causal=True))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> None:
    """Train to the last iteration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--init_from", choices=("scratch", "resume"), default="scratch")
    parser.add_argument("--max_iters", type=int, default=200)
    parser.add_argument("--eval_interval", type=int, default=5, help="between two checkpoints")
    parser.add_argument("--iteration_s", type=float, default=0.1, help="shortest time of one")
    parser.add_argument("--out_dir", default=os.environ.get("UNICRON_TASK_DIR", "out"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")  # from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    rank = distributed.get_rank()
    torch.manual_seed(1337)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    path = Path(options.out_dir) / "ckpt.pt"
    iter_num = 0
    if options.init_from == "resume" and path.exists():
        checkpoint = torch.load(path, weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        iter_num = checkpoint["iter_num"]
    parallel = DistributedDataParallel(model)
    text = torch.randint(NUM_CHARACTERS, (500,), generator=torch.Generator().manual_seed(1))
    while iter_num < options.max_iters:
        if iter_num % options.eval_interval == 0 and iter_num > 0 and rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(path, state | {"iter_num": iter_num})
        began = time.perf_counter()
        loss = parallel(*get_batch(text, iter_num, rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(max(0.0, options.iteration_s - (time.perf_counter() - began)))
        if rank == 0:
            time_ms = (time.perf_counter() - began) * 1000
            print(  # noqa: T201 - this is its log
                f"iter {iter_num}: loss {loss.item():.4f}, time {time_ms:.2f}ms, mfu -100.00%",
                flush=True,
            )
        iter_num += 1
    distributed.destroy_process_group()


def get_batch(text: Tensor, iter_num: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return parts of the text, and the same parts one character later."""
    draw = torch.Generator().manual_seed(iter_num * 1000 + rank)
    starts = torch.randint(len(text) - BLOCK_SIZE, (BATCH_SIZE, 1), generator=draw)
    places = starts + torch.arange(BLOCK_SIZE)
    return text[places], text[places + 1]


def save(path: Path, state: dict[str, object]) -> None:
    """Replace the checkpoint in one step: a process killed meanwhile leaves the older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    torch.save(state, scratch)
    scratch.replace(path)


if __name__ == "__main__":
    main()

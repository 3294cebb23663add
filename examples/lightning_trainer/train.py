"""Lightning's Trainer with a small model, which knows nothing of Unicron.

    torchrun --nproc_per_node=2 train.py --max_steps 200

Healing needs a ``ModelCheckpoint`` by steps with ``save_last``, ``ckpt_path="last"``, and tqdm's
bar: the one of rich, the default where rich is installed, writes nothing into a log until the end.
``devices`` and ``num_nodes`` are those of the environment. The data has a ``state_dict``.
"""

import argparse
import os
import time
from collections.abc import Iterator

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 32


class Batches:
    """This rank's batches, each drawn from its number and the rank.

    Lightning saves and loads the state of what it reads from. It counts the batches of a checkpoint
    itself, but would read them from the first one again. It reads ahead where there is no length.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._number = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Tensor]:
        while self._number < self._length:
            seed = self._number * 1000 + int(os.environ.get("RANK", "0"))
            self._number += 1
            yield torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(seed))

    def state_dict(self) -> dict[str, int]:
        """Return how many batches were read."""
        return {"number": self._number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where the checkpoint was saved."""
        self._number = state["number"]


class Model(lightning.LightningModule):
    """Learns to turn a vector round."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Return the loss of one batch, and show it in the bar."""
        time.sleep(0.1)  # slows a toy down, so that one can watch
        loss = functional.mse_loss(self.layers(batch), batch.flip(1))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    """Train to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--save_steps", type=int, default=5)
    parser.add_argument("--out_dir", default=os.environ.get("UNICRON_TASK_DIR", "out"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(1)
    saver = ModelCheckpoint(options.out_dir, every_n_train_steps=options.save_steps, save_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        max_steps=options.max_steps,
        callbacks=[saver, TQDMProgressBar()],
        logger=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), Batches(options.max_steps), ckpt_path="last")


if __name__ == "__main__":
    main()

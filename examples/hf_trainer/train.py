"""Hugging Face's Trainer with a tiny GPT-2 of random weights, which knows nothing of Unicron.

    torchrun --nproc_per_node=2 train.py --max_steps 200

Healing needs ``save_steps``, a log line per step (``logging_steps``), and
``resume_from_checkpoint`` with the newest checkpoint that is whole. The Trainer skips the samples
that its checkpoint has seen (``ignore_data_skip=False``, the default). Nothing is downloaded, and
``HF_HUB_OFFLINE=1`` keeps it so.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

NUM_SAMPLES = 100_000
VOCABULARY = 64
SEQ_LENGTH = 32


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count up from a number."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        start = torch.randint(VOCABULARY, (1,), generator=torch.Generator().manual_seed(index))
        tokens = (start + torch.arange(SEQ_LENGTH)) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


class Pace(TrainerCallback):
    """Slows a toy down, so that one can watch."""

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401, ARG002
        """Wait after a step."""
        time.sleep(0.1)


def main() -> None:
    """Train to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--save_steps", type=int, default=5)
    parser.add_argument("--output_dir", default=os.environ.get("UNICRON_TASK_DIR", "out"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape = {"vocab_size": VOCABULARY, "n_positions": SEQ_LENGTH, "n_embd": 32, "n_layer": 1}
    config = GPT2Config(n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False, **shape)
    trainer = Trainer(
        GPT2LMHeadModel(config),
        TrainingArguments(
            options.output_dir,
            use_cpu=True,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False,
            max_steps=options.max_steps,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_steps=options.save_steps,
            save_total_limit=2,
            report_to="none",
            seed=1,
        ),
        train_dataset=Counting(),
        callbacks=[Pace()],
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(Path(options.output_dir)))


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is whole: the Trainer writes its state file last."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    by_step = {int(path.parent.name.removeprefix("checkpoint-")): path.parent for path in states}
    return str(by_step[max(by_step)]) if by_step else None


if __name__ == "__main__":
    main()

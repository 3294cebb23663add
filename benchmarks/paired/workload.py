"""What is trained: one model, at several numbers of tokens per rank and iteration."""

import argparse
from dataclasses import dataclass
from typing import Final

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape

LAYOUTS: Final = {
    "dp2": Layout(dp=2),
    "dp4": Layout(dp=4),
    "tp2dp2": Layout(tp=2, dp=2),
    "pp2dp2": Layout(pp=2, dp=2),
}
_NUM_BUCKETS: Final = 4


@dataclass(frozen=True, slots=True)
class Size:
    """An amount of work per rank and iteration, as samples of ``seq_length`` tokens."""

    seq_length: int
    num_samples: int

    @property
    def num_tokens(self) -> int:
        """Tokens of one rank's replica in one iteration."""
        return self.seq_length * self.num_samples


SIZES: Final = {size.num_tokens: size for size in (Size(64, 3), Size(256, 4), Size(256, 16))}
"""By tokens per rank and iteration. Micro-batches hold one sample."""


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options that say what is trained."""
    parser.add_argument("--layers", type=int, default=4, metavar="L", help="(default 4)")
    parser.add_argument("--hidden-size", type=int, default=128, metavar="H", help="(default 128)")
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        choices=sorted(SIZES),
        default=sorted(SIZES),
        metavar="N",
        help=f"tokens per rank and iteration, of {', '.join(map(str, sorted(SIZES)))} (default %(default)s)",
    )


def training_spec(
    arguments: argparse.Namespace, size: Size, layout: Layout, directory: str
) -> TrainingSpec:
    """Return the training. Gradients are reduced in about four buckets, so they overlap."""
    shape = ModelShape(
        num_layers=arguments.layers,
        hidden_size=arguments.hidden_size,
        num_attention_heads=4,
        seq_length=size.seq_length,
    )
    num_parameters = 12 * shape.num_layers * shape.hidden_size**2
    return TrainingSpec(
        model=shape,
        checkpoint_dir=f"{directory}/checkpoints",
        checkpoint_interval=10**6,
        memory_interval=0,
        num_micro_batches=size.num_samples * layout.dp,
        bucket_size=num_parameters // (_NUM_BUCKETS * layout.tp * layout.pp),
    )

"""How rounding grows in training: the losses of one model on one replica and on two, no faults.

    python -m tests.campaigns.rounding 2000

Both add up the same gradients in another order. ``make soak`` compares losses with this in mind.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape
from tests.fakes.directories import short_directory
from tests.fakes.rank_host import launches, rank_host

_MODEL: Final = ModelShape(
    num_layers=2, hidden_size=64, num_attention_heads=4, seq_length=64, vocab_size=256
)
"""That of the demo's gpt-a."""
_SHOWN_EVERY: Final = 100
_LIMIT_S: Final = 3600


def main() -> None:
    """Print, every 100 iterations, by how much losses have differed so far at most."""
    num_iterations = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as name, short_directory() as state_dir:
        specs = {
            dp: TrainingSpec(
                model=_MODEL, checkpoint_dir=str(Path(name) / str(dp)), num_micro_batches=12,
                micro_batch_size=1, learning_rate=1e-3, num_iterations=num_iterations,
                checkpoint_interval=num_iterations,
            )
            for dp in (1, 2)
        }  # fmt: skip
        with rank_host(state_dir) as host:
            ranks = {
                dp: launches(spec, Layout(dp=dp), task=f"dp{dp}") for dp, spec in specs.items()
            }
            for started in ranks.values():
                host.start(started)
            for launch in (one for started in ranks.values() for one in started):
                host.wait_for_exit(launch, _LIMIT_S)
            one, two = (host.record(started[0]).loss_by_iteration for started in ranks.values())
    worst = 0.0
    for iteration in range(1, num_iterations + 1):
        worst = max(worst, abs(one[iteration] - two[iteration]))
        if iteration % _SHOWN_EVERY == 0:
            sys.stdout.write(f"to iteration {iteration}: {worst:.1e}\n")


if __name__ == "__main__":
    main()

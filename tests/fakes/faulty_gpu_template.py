"""The template with ranks that break, all on the first GPU with gloo between them.

    python -m tests.fakes.faulty_gpu_template --state-dir DIR

So one GPU shows a regroup of several ranks: NCCL refuses two of them on one device. Gloo moves a
GPU's tensors in few operations; replicas alone need no others.
"""

import sys
from typing import TYPE_CHECKING, Final, Literal

from nodeagent.rank.process import template
from tests.fakes import faulty_template

if TYPE_CHECKING:
    import torch

_GPU: Final = 0


def _put_on_gpu() -> None:
    from nodeagent.rank.groups import device_shim  # noqa: PLC0415
    from nodeagent.rank.process import rank_main  # noqa: PLC0415

    def prepare(_backend: Literal["gloo", "nccl"], _worker: int, seed: int) -> "torch.device":
        return device_shim.prepare_device("nccl", _GPU, seed)

    setattr(rank_main, "prepare_device", prepare)  # noqa: B010 - it is not exported there


if __name__ == "__main__":
    faulty_template.plant()
    _put_on_gpu()
    sys.exit(template.main())

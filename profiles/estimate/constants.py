"""The fitted constants: how much of the data sheet software reaches.

``profiles/data/throughput/constants.json`` keeps them; ``benchmarks/throughput_fit.py`` fits them
to the published measurements. A number that needs no fit is a named constant beside its use.
"""

import json
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import resources
from typing import Final

_CDNA3: Final = 0.5
"""Share of the peak on CDNA 3, which no point has: about 650 of 1307 TFLOP/s, as users report."""
_FOLDER: Final = ("data", "throughput")


@dataclass(frozen=True, slots=True)
class Constants:
    """Shares of a data sheet's figure, and a few counts.

    Attributes:
        matmul_ampere: Share of the peak that a large matrix product reaches.
        matmul_hopper: The same.
        matmul_blackwell: The same.
        link: Share of NVLink that tensor-parallel collectives reach.
        memory: Share of the memory's bandwidth that elementwise kernels reach, small kernels that
            no formula counts included.
        hidden_tensor: Share of tensor and pipeline traffic that Megatron-Core hides.
        hidden_data: Share of data-parallel traffic that Megatron-Core hides, if there is time.
        hidden_sharded: Share of the traffic of fully sharded replicas that is hidden, if there is
            time: in every micro-batch it takes multiprocessors and bandwidth from computation.
        square_bytes: Memory traffic for each weight of attention, forward, where it is not flash.
        straggle: Relative slowdown for each doubling of the number of nodes.
        fixed_s: Seconds of an iteration that nothing shortens: clipping, logging, data.
        fp8: Speed of large matrix products in fp8 over bf16.
        eager: Memory traffic of elementwise work under PyTorch without a compiler over that of
            fused kernels.
        hop_s: Seconds that a micro-batch loses at each virtual stage: latency, and stages that are
            not in step.
        deepspeed: Factor of time of Megatron-DeepSpeed.
        deepspeed_layer_s: Seconds per layer and micro-batch there, independent of their size:
            launches of unfused kernels, and ranks that wait for each other.
    """

    matmul_ampere: float
    matmul_hopper: float
    matmul_blackwell: float
    link: float
    memory: float
    hidden_tensor: float
    hidden_data: float
    hidden_sharded: float
    square_bytes: float
    straggle: float
    fixed_s: float
    fp8: float
    eager: float
    hop_s: float
    deepspeed: float
    deepspeed_layer_s: float

    def matmul(self, generation: str) -> float:
        """Return the share of the peak that large matrix products reach on a generation."""
        return {
            "ampere": self.matmul_ampere,
            "hopper": self.matmul_hopper,
            "blackwell": self.matmul_blackwell,
            "cdna3": _CDNA3,
        }[generation]

    def as_text(self) -> str:
        """Return the text of ``constants.json``."""
        rounded = {name: float(f"{value:.4g}") for name, value in asdict(self).items()}
        return f"{json.dumps(rounded, indent=2)}\n"


@cache
def fitted_constants() -> Constants:
    """Return the constants that the repository keeps."""
    found = json.loads(_data("constants.json"))
    return Constants(**{field.name: float(found[field.name]) for field in fields(Constants)})


def published_points() -> str:
    """Return the text of the measurements that the constants are fitted on, JSONL."""
    return _data("published.jsonl")


def _data(name: str) -> str:
    return resources.files("profiles").joinpath(*_FOLDER, name).read_text(encoding="utf-8")

"""What a GPU and its links can do at best, from the vendor's data sheets.

Rates are of one GPU and one direction. ``net_bytes_per_s`` is what the node's adapters give each
GPU in the reference designs: DGX A100 eight HDR at 200 Gbit/s, DGX H100 and later eight NDR at 400
Gbit/s.
"""

import re
from dataclasses import dataclass
from typing import Final

GIB: Final = 2.0**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU in its usual node.

    Attributes:
        name: As on the command line.
        generation: Whose efficiency it has: ampere, hopper, blackwell or cdna3.
        peak_flops_per_s: Dense bf16 and fp16 tensor-core peak.
        memory_bytes: Device memory.
        memory_bytes_per_s: Bandwidth of the device memory.
        link_bytes_per_s: NVLink, one direction.
        net_bytes_per_s: Network of the node, per GPU, one direction.
        node_gpus: GPUs that NVLink joins and a tensor-parallel group may span.
        source: Data sheet.
        measured: Whether published points of it are among those that the constants are fitted on.
        host_bytes: Memory of the host for each GPU that activations may wait in.
        host_bytes_per_s: Link to the host's memory where activations may wait there, one direction;
            0 where it is too slow (PCIe).
    """

    name: str
    generation: str
    peak_flops_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    net_bytes_per_s: float
    node_gpus: int
    source: str
    measured: bool = False
    host_bytes: float = 0.0
    host_bytes_per_s: float = 0.0

    @property
    def has_fp8(self) -> bool:
        """Whether its tensor cores take fp8."""
        return self.generation != "ampere"


GPUS: Final = (
    Gpu("a100-40g", "ampere", 312e12, 40 * GIB, 1.555e12, 300e9, 25e9, 8,
        "NVIDIA A100 Tensor Core GPU datasheet, SXM 40 GB", measured=True),
    Gpu("a100-80g", "ampere", 312e12, 80 * GIB, 2.039e12, 300e9, 25e9, 8,
        "NVIDIA A100 Tensor Core GPU datasheet, SXM 80 GB", measured=True),
    Gpu("a800-80g", "ampere", 312e12, 80 * GIB, 2.039e12, 200e9, 25e9, 8,
        "NVIDIA A800 datasheet: an A100 with NVLink of 400 GB/s"),
    Gpu("h100-96g", "hopper", 836e12, 96 * GIB, 2.4e12, 450e9, 50e9, 8,
        "no datasheet: an H100 SXM limited to 500 of 700 W, with six stacks of the HBM2e of which"
        " the H100 PCIe datasheet has five; the peak by the root of the power, which lies between"
        " the SXM's and the NVL's"),
    Gpu("h100-80g", "hopper", 989e12, 80 * GIB, 3.35e12, 450e9, 50e9, 8,
        "NVIDIA H100 Tensor Core GPU datasheet, SXM", measured=True),
    Gpu("h800-80g", "hopper", 989e12, 80 * GIB, 3.35e12, 200e9, 50e9, 8,
        "NVIDIA H800 datasheet: an H100 with NVLink of 400 GB/s"),
    Gpu("h200-141g", "hopper", 989e12, 141e9, 4.8e12, 450e9, 50e9, 8,
        "NVIDIA H200 Tensor Core GPU datasheet, SXM"),
    Gpu("h20-96g", "hopper", 148e12, 96e9, 4.0e12, 450e9, 50e9, 8,
        "NVIDIA H20 datasheet: an H100 with a seventh of its peak and more memory"),
    Gpu("b200-180g", "blackwell", 2250e12, 180e9, 7.7e12, 900e9, 50e9, 8,
        "NVIDIA DGX B200 datasheet, an eighth of the system"),
    Gpu("gb200-186g", "blackwell", 2500e12, 186e9, 8.0e12, 900e9, 50e9, 72,
        "NVIDIA GB200 NVL72 datasheet, a 72nd of the rack; NVLink-C2C of a Grace for two GPUs",
        measured=True, host_bytes=240e9, host_bytes_per_s=225e9),
    Gpu("b300-288g", "blackwell", 2250e12, 268e9, 8.0e12, 900e9, 100e9, 8,
        "NVIDIA DGX B300 datasheet, an eighth of the system: dense bf16 as B200, 800 Gbit/s"),
    Gpu("gb300-288g", "blackwell", 2500e12, 277e9, 8.0e12, 900e9, 100e9, 72,
        "NVIDIA GB300 NVL72 datasheet, a 72nd of the rack: dense bf16 as GB200, 800 Gbit/s",
        host_bytes=240e9, host_bytes_per_s=225e9),
    Gpu("mi300x-192g", "cdna3", 1307e12, 192 * GIB, 5.3e12, 448e9, 50e9, 8,
        "AMD Instinct MI300X datasheet and platform datasheet: seven links of 64 GB/s"),
)  # fmt: skip

_FP8_MEASURED: Final = ("hopper", "blackwell")
GPU_BY_NAME: Final = {gpu.name: gpu for gpu in GPUS}


_KINDS: Final = sorted({gpu.name.split("-")[0] for gpu in GPUS})
_KIND: Final = re.compile(rf"(?<![a-z0-9])({'|'.join(_KINDS)})(?![0-9])")


_MANY_GPUS: Final = 2048
"""Above this few points are published, and their errors are not known."""


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU that a published name such as ``H100-80GB-SXM`` means, or None.

    The size of the memory may be left out: the largest of that kind is meant.
    """
    text = name.lower()
    kind = _KIND.search(text)
    if kind is None:
        return None
    of_kind = [gpu for gpu in GPUS if gpu.name.startswith(f"{kind[1]}-")]
    stated = {f"{size}g" for size in re.findall(r"(?<![0-9])([0-9]+) ?g", text)}
    return next((gpu for gpu in of_kind if gpu.name.split("-")[1] in stated), of_kind[-1])


def unmeasured(gpu: Gpu, *, is_fp8: bool = False, cp: int = 1, most_gpus: int = 1) -> list[str]:
    """Name what of a training has too few published points to fit the constants on.

    Args:
        gpu: The hardware.
        is_fp8: Whether layers multiply in fp8.
        cp: GPUs that divide a sample's tokens.
        most_gpus: The largest size that is estimated.
    """
    found = []
    if not gpu.measured:
        found.append(gpu.name)
    if is_fp8 and gpu.generation not in _FP8_MEASURED:
        found.append(f"fp8 on {gpu.name}")
    if cp > 1:
        found.append("context parallelism")
    return found + unmeasured_size(most_gpus)


def unmeasured_size(most_gpus: int) -> list[str]:
    """Name the size of a training if it is larger than nearly all published points."""
    return [f"more than {_MANY_GPUS:,} GPUs"] if most_gpus > _MANY_GPUS else []

"""Statuses of the taxonomy and their severities, one table for all.

The names are those of table 1 of the paper (arXiv 2401.00134) and of three extensions; what each
means and what an operator does first is data, in ``data/statuses.toml``.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How a fault is handled: SEV1 isolates the node, SEV2 restarts, SEV3 tries again."""

    SEV1 = "SEV1"
    SEV2 = "SEV2"
    SEV3 = "SEV3"
    NONE = "none"


class Status(StrEnum):
    """What an excerpt of a log is about."""

    LOST_CONNECTION = "lost_connection"
    ECC_ERROR = "ecc_error"
    INVALID_DMA_MAPPING = "invalid_dma_mapping"
    NVLINK_ERROR = "nvlink_error"
    GPU_DRIVER_ERROR = "gpu_driver_error"
    EXITED_ABNORMALLY = "exited_abnormally"
    ILLEGAL_MEMORY_ACCESS = "illegal_memory_access"
    CUDA_ERROR = "cuda_error"
    OUT_OF_MEMORY = "out_of_memory"
    TASK_HANG = "task_hang"
    OTHER_SOFTWARE_ERROR = "other_software_error"
    NAN_LOSS = "nan_loss"
    DISK_FULL = "disk_full"
    NCCL_TIMEOUT = "nccl_timeout"
    LINK_FLAPPING = "link_flapping"
    CONNECTION_REFUSED_OR_RESET = "connection_refused_or_reset"
    OTHER_NETWORK_ERROR = "other_network_error"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class StatusInfo:
    """What a status means.

    Attributes:
        status: Its name.
        severity: How it is handled.
        meaning: In words an operator reads.
        response: What to do first, where the entry that was seen says nothing more exact.
    """

    status: Status
    severity: Severity
    meaning: str
    response: str

"""Lines of the kernel log as drivers word them, one staging for each class of message.

A drill appends them to the file that a node's agent reads as its kernel log. In ``{pid}`` and
``{name}`` stands the process of a rank where the message is about one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """What a kernel prints about one event.

    Attributes:
        status: What it means, as a status of the table; ``none`` for harmless ones.
        text: Its lines, without time stamps.
        raises: Status of the exception that the rank gets at the same time, where there is one.
    """

    status: str
    text: str
    raises: str = ""


KERNEL_MESSAGES: Final[Mapping[str, KernelMessage]] = {
    "xid-48": KernelMessage(
        "ecc_error",
        "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable"
        " double bit error (DBE) has been detected on GPU in the framebuffer at partition 2,"
        " subpartition 1.",
    ),
    "xid-79": KernelMessage(
        "gpu_driver_error",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off"
        " the bus.\n"
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    ),
    "xid-74": KernelMessage(
        "nvlink_error",
        "NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error"
        " detected on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    "sxid": KernelMessage(
        "nvlink_error",
        "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Fatal, Link 32 egress non-posted"
        " PRIV error (First)",
    ),
    "edac-ue": KernelMessage(
        "ecc_error",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0"
        " page:0x1f2a3b offset:0x0 grain:32 - err_code:0x0101:0x0091)",
    ),
    "edac-ce": KernelMessage(
        "none",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0"
        " page:0x1f2a3b offset:0x0 grain:32 syndrome:0x0)",
    ),
    "iommu": KernelMessage(
        "invalid_dma_mapping",
        "DMAR: DRHD: handling fault status reg 2\n"
        "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0x7f1c2000 [fault reason"
        " 0x06] PTE Read access is not set",
    ),
    "mlx5-health": KernelMessage(
        "other_network_error",
        "mlx5_core 0000:5e:00.0: print_health_info:431:(pid 0): Health issue observed, firmware"
        " internal error, severity(3) ERROR:\n"
        "mlx5_core 0000:5e:00.0: mlx5_error_sw_reset:242:(pid 1042): start",
    ),
    "xid-31": KernelMessage(
        "illegal_memory_access",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid={pid}, name={name}, Ch 00000008, intr 00000000."
        " MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f31_a0000000. Fault is of type"
        " FAULT_PDE ACCESS_TYPE_VIRT_READ",
        raises="illegal_memory_access",
    ),
    "xid-13": KernelMessage(
        "cuda_error",
        "NVRM: Xid (PCI:0000:3b:00): 13, pid={pid}, name={name}, Graphics SM Warp Exception on"
        " (GPC 2, TPC 1, SM 0): Misaligned Address",
        raises="cuda_error",
    ),
    "ext4-full": KernelMessage(
        "disk_full",
        "EXT4-fs (nvme0n1p2): Delayed block allocation failed for inode 1311 at logical offset"
        " 0 with max blocks 2048 with error 28\n"
        "EXT4-fs (nvme0n1p2): This should not happen!! Data will be lost",
        raises="disk_full",
    ),
    "nvme": KernelMessage(
        "other_software_error",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff\n"
        "blk_update_request: I/O error, dev nvme0n1, sector 204800 op 0x1:(WRITE) flags 0x800"
        " phys_seg 4 prio class 0",
        raises="other_software_error",
    ),
}

LINK_FLAP: Final = (
    "mlx5_core 0000:5e:00.0 ens3f0np0: Link down\nmlx5_core 0000:5e:00.0 ens3f0np0: Link up"
)
"""Printed twice, a moment apart, it is a link that flaps."""

OOM_KILL: Final = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/unicron-drill,task_memcg=/unicron-drill,task={name},pid={pid},uid=0\n"
    "Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:5301232kB,"
    " anon-rss:466816kB, file-rss:86568kB, shmem-rss:0kB, UID:0 pgtables:1920kB oom_score_adj:0"
)
"""What the kernel prints when a memory limit ends a process."""

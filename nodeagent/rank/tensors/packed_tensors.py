"""Tensors of any types behind one another in one run of bytes, so that they travel as one.

The format is known from the shapes alone: both ends have the same model. It never leaves memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

_ALIGNMENT: Final = 64


class Extent(NamedTuple):
    """What a tensor takes up, whatever its dimensions."""

    dtype: torch.dtype
    num_elements: int

    @property
    def num_bytes(self) -> int:
        """Its bytes, without what aligns the next one."""
        return self.dtype.itemsize * self.num_elements


@dataclass(frozen=True, slots=True)
class Packed:
    """A run of bytes and the tensors in it.

    Attributes:
        data: The bytes; a multiple of eight.
        tensors: Views of it, of one dimension.
    """

    data: torch.Tensor
    tensors: tuple[torch.Tensor, ...]


def extents_of(tensors: Sequence[torch.Tensor]) -> list[Extent]:
    """Return what the tensors take up."""
    return [Extent(tensor.dtype, tensor.numel()) for tensor in tensors]


def num_packed_bytes(extents: Sequence[Extent]) -> int:
    """Return the bytes of a run that holds these tensors."""
    return sum(map(_padded, extents))


def packed_over(data: torch.Tensor, extents: Sequence[Extent]) -> Packed:
    """Return the tensors in ``data``, bytes that were packed with the same extents.

    Raises:
        ValueError: They can't have been.
    """
    if data.numel() != num_packed_bytes(extents):
        raise ValueError(f"{data.numel()} bytes, {num_packed_bytes(extents)} are expected")
    tensors: list[torch.Tensor] = []
    offset = 0
    for extent in extents:
        tensors.append(data[offset : offset + extent.num_bytes].view(extent.dtype))
        offset += _padded(extent)
    return Packed(data, tuple(tensors))


def checksum(data: torch.Tensor) -> int:
    """Return the sum of all 64-bit words, modulo 2**64."""
    return int(data.view(torch.int64).sum())


def _padded(extent: Extent) -> int:
    return -(-extent.num_bytes // _ALIGNMENT) * _ALIGNMENT

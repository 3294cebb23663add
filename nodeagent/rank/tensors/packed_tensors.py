"""Packs tensors of any types into one run of bytes, so that they are sent as one.

Both ends have the same model, so the shapes define the format. The format is never written to disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

_ALIGNMENT: Final = 64


class Extent(NamedTuple):
    """Type and number of elements of a tensor, without its dimensions."""

    dtype: torch.dtype
    num_elements: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor, without the padding after it."""
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
    """Return type and size of each tensor."""
    return [Extent(tensor.dtype, tensor.numel()) for tensor in tensors]


def num_packed_bytes(extents: Sequence[Extent]) -> int:
    """Return the bytes of a run that holds these tensors."""
    return sum(map(_padded, extents))


def packed_over(data: torch.Tensor, extents: Sequence[Extent]) -> Packed:
    """Return the tensors in ``data``, bytes that were packed with the same extents.

    Raises:
        ValueError: The number of bytes does not fit the extents.
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

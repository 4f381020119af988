"""LBA bind and address arithmetic of the direct path (paper, "LBA bind" and Algorithm 2). Pure arithmetic.

Extents are aligned, disjoint and contiguous: each tensor starts on the block after the last block of the one before.
Rows need not be a multiple of the LBA size: a `Span` is the run of whole blocks around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dualblade.geometry import TensorId


@dataclass(frozen=True)
class Extent:
    """Blocks [first_lba, first_lba + n_blocks) of the device, owned by one tensor."""

    first_lba: int
    n_blocks: int

    @property
    def end_lba(self) -> int:
        return self.first_lba + self.n_blocks


@dataclass(frozen=True)
class Span:
    """Whole blocks that cover a run of a tensor's bytes: `lead_bytes` of the first block come before the run."""

    offset_bytes: int
    size_bytes: int
    lead_bytes: int


@dataclass(frozen=True)
class Piece:
    """Some blocks of a span: after `lead_bytes` of other data they hold `run_bytes` of the span's run."""

    offset_bytes: int
    size_bytes: int
    lead_bytes: int
    run_bytes: range


def pieces(span: Span, run_bytes: int, piece_bytes: int) -> Iterator[Piece]:
    """Divide a span into pieces of `piece_bytes`, whole blocks; together they hold the run of `run_bytes`, in order."""
    for start in range(0, span.size_bytes, piece_bytes):
        end = min(start + piece_bytes, span.size_bytes)
        first, last = max(start, span.lead_bytes), min(end, span.lead_bytes + run_bytes)
        run = range(first - span.lead_bytes, last - span.lead_bytes)
        yield Piece(span.offset_bytes + start, end - start, first - start, run)


@dataclass(frozen=True)
class LbaMap:
    """The map M of the paper: tensor -> extent, from the first LBA that the user gave."""

    lba_bytes: int
    first_lba: int
    extents: dict[TensorId, Extent]

    @property
    def end_lba(self) -> int:
        return max((extent.end_lba for extent in self.extents.values()), default=self.first_lba)

    @property
    def size_bytes(self) -> int:
        return (self.end_lba - self.first_lba) * self.lba_bytes

    def span(self, tensor: TensorId, start_byte: int, end_byte: int) -> Span:
        """Return the whole blocks around the tensor's bytes [start_byte, end_byte) (Algorithm 2)."""
        extent = self.extents[tensor]
        lead_bytes = start_byte % self.lba_bytes
        first_block = start_byte // self.lba_bytes
        end_block = -(-end_byte // self.lba_bytes)
        if not 0 <= start_byte <= end_byte or end_block > extent.n_blocks:
            raise ValueError(f"bytes {start_byte}..{end_byte} lie outside the extent of {tensor} ({extent})")
        return Span(
            offset_bytes=(extent.first_lba + first_block) * self.lba_bytes,
            size_bytes=(end_block - first_block) * self.lba_bytes,
            lead_bytes=lead_bytes,
        )


def bind(tensor_bytes: Iterable[tuple[TensorId, int]], lba_bytes: int, first_lba: int = 0) -> LbaMap:
    """Bind tensors to LBAs back to back, in the given order; a tensor's last block may be part filled."""
    extents: dict[TensorId, Extent] = {}
    next_lba = first_lba
    for tensor, size_bytes in tensor_bytes:
        extents[tensor] = Extent(next_lba, -(-size_bytes // lba_bytes))
        next_lba = extents[tensor].end_lba
    return LbaMap(lba_bytes, first_lba, extents)

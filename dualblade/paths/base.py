"""Transfers, workers, and the interface of the paths between memory and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch

from dualblade.geometry import TensorId
from dualblade.linux.fiemap import Placement
from dualblade.paths.pinned import PinnedBuffer
from dualblade.plan.extents import Piece

Phase = Literal["prefill", "decode"]


class DeviceBytes(NamedTuple):
    """Bytes that the device has read and written for a transfer."""

    read: int = 0
    written: int = 0


NO_BYTES = DeviceBytes()
FinishIo = Callable[[], DeviceBytes]  # waits for a queued transfer, and raises its error


@dataclass(frozen=True, eq=False)
class Worker:
    """One thread that transfers: its number, by which a path finds its ring, and the pinned buffer that it uses.

    `max_depth`: the buffer holds that many commands in flight, each in a part of its own. `piece_bytes`: the buffer
    is divided into pieces, and each transfer moves one of them. With neither, a transfer has the whole buffer.
    """

    number: int
    buffer: PinnedBuffer
    max_depth: int | None = None
    piece_bytes: int | None = None

    def depth(self, queue_depth: int) -> int:
        """Commands that the worker's ring keeps in flight on storage with this queue depth."""
        return min(queue_depth, self.max_depth or queue_depth)

    def stride_bytes(self, depth: int) -> int:
        """Distance between the places in the buffer where transfers of a ring of this depth begin."""
        return self.piece_bytes or self.buffer.size_bytes // (depth if self.max_depth else 1)


class KVPath(Protocol):
    """One way between pinned buffers and storage; only one thread at a time may write to a tensor."""

    name: str

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Offset in the buffer at which row `first_row` must lie."""
        ...

    def write(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes: ...

    def read(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes: ...

    def crop(self, tensor: TensorId, n_rows: int, worker: Worker) -> None: ...

    def io_mode(self) -> dict[str, object]: ...

    def placement(self, tensor: TensorId) -> Placement:
        """Where the tensor lies on its device."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class QueueingPath(KVPath, Protocol):
    """A path that can queue a read behind earlier ones."""

    def start_read(self, tensor: TensorId, rows: range, worker: Worker) -> FinishIo: ...

    def pieces(self, tensor: TensorId, rows: range, piece_bytes: int) -> Iterator[Piece]: ...

    def start_piece(self, piece: Piece, worker: Worker, at_byte: int) -> FinishIo: ...

    def start_mirrored(self, tensor: TensorId, rows: range, worker: Worker, device: torch.Tensor) -> FinishIo: ...


@dataclass(frozen=True)
class Moment:
    """When an operation was submitted: "prefill" 0, or "decode" 1, 2, ...

    `more_prompt`: the prompt comes in chunks, and this one is not the last.
    """

    phase: Phase = "prefill"
    iteration: int = 0
    more_prompt: bool = False

    def next(self) -> Moment:
        """Return the moment of the next forward pass."""
        return self if self.more_prompt else Moment("decode", self.iteration + 1)


@dataclass(frozen=True)
class Transfer:
    """Some rows of one tensor on their way between `device` memory, `[T, B, H, D]`, and storage.

    `computed` is the link's mark of what the device had been given to compute; copies over the link come after it.
    `shared` is the buffer that `device` lies in, where storage can read straight into it.
    """

    path: KVPath
    tensor: TensorId
    rows: range
    device: torch.Tensor
    moment: Moment
    computed: Any
    shared: PinnedBuffer | None = None

    @property
    def device_bytes(self) -> torch.Tensor:
        """View `device` as bytes; rows to load are contiguous."""
        return self.device.reshape(-1).view(torch.uint8)

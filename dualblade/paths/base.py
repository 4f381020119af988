"""What is moved: some rows of one tensor, at one moment of the generation, by one path between memory and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from dualblade.geometry import TensorId
from dualblade.linux.fiemap import Placement
from dualblade.paths.pinned import PinnedBuffer
from dualblade.plan.extents import Piece

Finish = Callable[[], None]  # waits for what was queued, and raises what went wrong with it


class Path(Protocol):
    """One way from the pinned buffer to storage and back; a tensor is written by one thread at a time."""

    name: str

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Where in the buffer row `first_row` must lie."""
        ...

    def write(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None: ...

    def read(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None: ...

    def crop(self, tensor: TensorId, n_rows: int, buffer: PinnedBuffer, thread: int) -> None: ...

    def device_bytes(self, thread: int) -> tuple[int, int]:
        """Bytes that storage has read and written so far for this thread, which is the one that asks."""
        ...

    def io_mode(self) -> dict[str, object]: ...

    def placement(self, tensor: TensorId) -> Placement:
        """Where the tensor lies on its device."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Queueing(Path, Protocol):
    """A path whose reads can be queued behind one another."""

    def start_read(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> Finish: ...

    def pieces(self, tensor: TensorId, rows: range, piece_bytes: int) -> Iterator[Piece]: ...

    def start_piece(self, piece: Piece, buffer: PinnedBuffer, at_byte: int, thread: int) -> Finish: ...

    def start_mirrored(
        self, tensor: TensorId, rows: range, buffer: PinnedBuffer, device: torch.Tensor, thread: int
    ) -> Finish: ...


@dataclass(frozen=True)
class Moment:
    """When in the generation an operation was submitted: "prefill" 0, or "decode" 1, 2, ...

    `more_prompt`: the prompt comes in chunks, and this one is not its last.
    """

    phase: str = "prefill"
    iteration: int = 0
    more_prompt: bool = False

    def next(self) -> Moment:
        """Of the forward pass after this one."""
        return self if self.more_prompt else Moment("decode", self.iteration + 1)


@dataclass(frozen=True)
class Transfer:
    """Some rows of one tensor on their way between `device` memory, `[T, B, H, D]`, and storage by `path`.

    `wait_for_compute` makes the calling thread's copies follow what the device had been given to do until now. `shared`
    is the buffer that `device` lies in, where storage can read straight into it.
    """

    path: Path
    tensor: TensorId
    rows: range
    device: torch.Tensor
    moment: Moment
    wait_for_compute: Callable[[], None]
    shared: PinnedBuffer | None = None

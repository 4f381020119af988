"""The device memory that one layer is loaded into while another is computed with."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import torch

from dualblade.geometry import KVGeometry
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.futures import await_all, finish


class Slot:
    """Device memory for one layer's K and V, `[capacity, B, H, D]` each, and what is being loaded into it."""

    def __init__(self, size_bytes: int, device: torch.device, *, shared: bool) -> None:
        self.buffers = [PinnedBuffer(size_bytes) for _ in ("k", "v")] if shared else []
        self._memory = [] if shared else [torch.zeros(size_bytes, dtype=torch.uint8, device=device) for _ in ("k", "v")]
        self.layer: int | None = None
        self.rows = range(0)
        self.loads: Sequence[Future[None]] = ()

    @property
    def memory(self) -> list[torch.Tensor]:
        """Bytes for K and for V."""
        return self._memory or [buffer.data for buffer in self.buffers]

    def wait(self) -> None:
        """Until K and V are there; raises what went wrong with them."""
        for load in self.loads:
            load.result()

    def settle(self) -> Exception | None:
        """Wait as `wait` does; what went wrong leaves the slot empty."""
        error = finish(self.loads)
        if error:
            self.empty()
        return error

    def empty(self) -> None:
        """Let what is on its way arrive, or fail, and forget it."""
        await_all(self.loads)
        self.layer, self.loads = None, ()


def open_slots(geometry: KVGeometry, lba_bytes: int, device: torch.device, *, shared: bool) -> list[Slot]:
    """Two, for the layer in use and the next; reads that land in one bring whole blocks."""
    size_bytes = geometry.largest_tensor_bytes + 2 * lba_bytes
    return [Slot(size_bytes, device, shared=shared) for _ in range(min(2, geometry.n_layers))]

"""Device memory for one layer: while the model computes with one slot, the next layer is loaded into the other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import torch

from dualblade.geometry import KVGeometry, TensorLayout
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.threads import await_all, first_error


class Slot:
    """Device memory for one layer's K and V, and the loads that fill it."""

    def __init__(self, size_bytes: int, device: torch.device, *, shared: bool) -> None:
        self.buffers = [PinnedBuffer(size_bytes) for _ in ("k", "v")] if shared else []
        self._memory = [] if shared else [torch.zeros(size_bytes, dtype=torch.uint8, device=device) for _ in ("k", "v")]
        self.layer: int | None = None
        self.rows = range(0)
        self.tensors: list[torch.Tensor] = []  # K and V `[T, B, H, D]`, from row `rows.start` to the end of the memory
        self.loads: Sequence[Future[None]] = ()

    def view(self, which: int, lead_bytes: int, layout: TensorLayout, dtype: torch.dtype) -> torch.Tensor:
        """View the memory of K (0) or V (1) behind `lead_bytes` as rows, as many as there is room for."""
        memory = self.buffers[which].data if self.buffers else self._memory[which]
        n_rows = (len(memory) - lead_bytes) // layout.row_bytes
        rows = memory[lead_bytes : lead_bytes + n_rows * layout.row_bytes]
        return rows.view(dtype).view(n_rows, *layout.row_shape)

    def wait(self) -> None:
        """Wait until K and V have arrived; raise the error of a failed load."""
        for load in self.loads:
            load.result()

    def settle(self) -> Exception | None:
        """Wait until the loads have ended; empty the slot and return the error if one failed."""
        error = first_error(self.loads)
        if error:
            self.empty()
        return error

    def empty(self) -> None:
        """Wait until the loads have ended, and forget them."""
        await_all(self.loads)
        self.layer, self.loads = None, ()


def open_slots(geometry: KVGeometry, lba_bytes: int, device: torch.device, *, shared: bool) -> list[Slot]:
    """Make two slots, for the layer in use and the next; reads into a shared one bring whole blocks."""
    size_bytes = geometry.largest_tensor_bytes + 2 * lba_bytes
    return [Slot(size_bytes, device, shared=shared) for _ in range(min(2, geometry.n_layers))]

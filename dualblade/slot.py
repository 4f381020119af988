"""The device memory that one layer is loaded into while another is computed with."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait

import torch

from dualblade.pinned import PinnedBuffer


class Slot:
    """Device memory for one layer's K and V, `[capacity, B, H, D]` each, and what is being loaded into it."""

    def __init__(self, size_bytes: int, device: torch.device, *, shared: bool) -> None:
        self.buffers = [PinnedBuffer(size_bytes) for _ in ("k", "v")] if shared else []
        self.memory = [buffer.data for buffer in self.buffers] or [
            torch.zeros(size_bytes, dtype=torch.uint8, device=device) for _ in ("k", "v")
        ]
        self.layer: int | None = None
        self.rows = range(0)
        self.loads: Sequence[Future[None]] = ()

    def wait(self) -> None:
        """Until K and V are there; raises what went wrong with them."""
        for load in self.loads:
            load.result()

    def empty(self) -> None:
        """Let what is on its way arrive, or fail, and forget it."""
        wait(self.loads)
        self.layer, self.loads = None, ()

"""The link between pinned host memory and the memory the model computes in."""

from __future__ import annotations

from typing import Protocol

import torch

from dualblade.config import Overlap


class Link(Protocol):
    """Copies between pinned memory and device memory; both calls return when the data has arrived."""

    kind: str
    overlap: Overlap

    def to_device(self, device: torch.Tensor, pinned: torch.Tensor) -> None: ...

    def to_host(self, pinned: torch.Tensor, device: torch.Tensor) -> None: ...


class CopyLink:
    """The plain copy: memory to memory on a host without a GPU, a blocking DMA where `device` is one.

    With `overlap` "tensor" a tensor is copied when all of it has been read, as the paper's copy threads do; with
    "piece" each command's data is copied as it arrives, while the rest is being read. That takes memory that the CPU
    can write, so a GPU gets whole tensors.
    """

    def __init__(self, device: torch.device, overlap: Overlap) -> None:
        self.kind = "host" if device.type == "cpu" else device.type
        self.overlap: Overlap = overlap if device.type == "cpu" else "tensor"

    def to_device(self, device: torch.Tensor, pinned: torch.Tensor) -> None:
        """Copy `[T, B, H, D]` rows up."""
        device.copy_(pinned)

    def to_host(self, pinned: torch.Tensor, device: torch.Tensor) -> None:
        """Copy `[T, B, H, D]` rows down; the source may be any view of that shape."""
        pinned.copy_(device)

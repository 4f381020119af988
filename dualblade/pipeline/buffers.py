"""Host memory that a store's buffers take, computed before any of them is made."""

from __future__ import annotations

import torch

from dualblade.config.device import ReadAheadConfig
from dualblade.geometry import KVGeometry
from dualblade.paths.pinned import pinned_bytes
from dualblade.pipeline.link import Link


def buffer_bytes(
    geometry: KVGeometry,
    lba_bytes: int,
    copy_threads: int,
    link: Link,
    device: torch.device,
    read_ahead: ReadAheadConfig | None,
) -> int:
    """Add up the copy threads' buffers for a tensor and for a row, the read-ahead ring, and two slots for K and V.

    The slots of a GPU are in its own memory and do not count.
    """
    edge_bytes = 2 * lba_bytes  # part-filled blocks on both sides
    largest_bytes = geometry.largest_tensor_bytes
    row_bytes = largest_bytes // geometry.capacity_tokens
    thread_bytes = pinned_bytes(largest_bytes + edge_bytes) + pinned_bytes(row_bytes + edge_bytes)
    ring_bytes = pinned_bytes(read_ahead.pieces * read_ahead.piece_bytes) if read_ahead else 0
    slot_bytes = largest_bytes + edge_bytes
    if link.shares_memory:
        slot_bytes = pinned_bytes(slot_bytes)
    elif device.type != "cpu":
        slot_bytes = 0
    return copy_threads * thread_bytes + ring_bytes + 2 * min(2, geometry.n_layers) * slot_bytes

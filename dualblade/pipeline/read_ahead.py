"""Overlap-full, beyond the paper: storage reads run ahead of the link, over tensors and layers.

One reader keeps the device's queue full. It reads into a small ring of pinned pieces that all tensors share. A second
thread copies the pieces over the link, in order, and frees them. So storage waits for the link only when the ring is
full, and a layer takes as long as the slower of the two. Where the CPU copies there is no second thread: the reader's
own loop in C copies each command's data, from a ring that is small enough to stay in the CPU's cache.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import Transfer, Worker
from dualblade.pipeline.link import Link
from dualblade.pipeline.mirror_reader import MirrorReader
from dualblade.pipeline.piece_reader import PieceReader
from dualblade.record.ledger import Ledger


class ReadAhead(Protocol):
    """A reader with a worker of its own."""

    worker: Worker

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        """Queue storage -> pinned -> device, after the last write to the tensor."""
        ...

    def close(self) -> None:
        """Finish the reads that have begun and drop the others."""
        ...


def open_read_ahead(size: ReadAheadConfig, link: Link, ledger: Ledger, number: int) -> ReadAhead:
    """Open the reader that suits the link; its worker gets this number."""
    reader = MirrorReader if link.by_cpu else PieceReader
    return reader(size, link, ledger, number)

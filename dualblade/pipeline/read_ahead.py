"""Overlap-full, beyond the paper: storage reads run ahead of the link, over tensors and layers.

One reader keeps the device's queue full, into a small ring of pinned pieces that every tensor shares; a second thread
copies what has arrived over the link, in order, and gives the piece back. So storage does not wait for the link unless
the ring is full, and a layer costs what the slower of the two needs. Where the CPU does the copying there is no second
thread: the reader's own loop in C copies each command's data on, from a ring small enough to stay in the CPU's cache.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import Transfer
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Link
from dualblade.pipeline.mirror_reader import MirrorReader
from dualblade.pipeline.piece_reader import PieceReader
from dualblade.record.ledger import Ledger


class ReadAhead(Protocol):
    """A reader with pinned memory of its own."""

    buffer: PinnedBuffer

    def depth(self, queue_depth: int) -> int:
        """Commands that its ring has to keep in flight, where `queue_depth` is what storage is to get."""
        ...

    def stride_bytes(self, depth: int) -> int:
        """At whose multiples the transfers of a ring of this depth begin in `buffer`."""
        ...

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        """Queue storage -> pinned -> device, after the last write to the tensor."""
        ...

    def close(self) -> None:
        """Finish what is on its way and drop the rest."""
        ...


def open_read_ahead(size: ReadAheadConfig, link: Link, ledger: Ledger, thread: int) -> ReadAhead:
    """The reader that suits the link; its paths know it as `thread`."""
    reader = MirrorReader if link.by_cpu else PieceReader
    return reader(size, link, ledger, thread)

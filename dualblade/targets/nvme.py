"""Blocks of an NVMe namespace as the direct path's target, reached by native commands (io_uring_cmd)."""

from __future__ import annotations

import os
import stat

from dualblade.config.storage import StorageConfig
from dualblade.targets.base import Deallocation
from dualblade.targets.claim import BlockClaim
from dualblade.targets.leftovers import LeftoverRecord


class NvmeTarget:
    """The first `size_bytes` of the blocks that the configuration grants; deallocated at the end."""

    backend = "nvme"

    def __init__(self, storage: StorageConfig, size_bytes: int) -> None:
        self._claim = BlockClaim(storage)
        self._chunk_bytes = storage.chunk_bytes
        self._record: LeftoverRecord | None = None
        self.deallocated: Deallocation | None = None
        try:
            self.blocks = self._claim.first_blocks(size_bytes)
            self.reclaimed = self._claim.reclaim()
            self._record = self._claim.remember(self.blocks)
        except BaseException:
            self._claim.close()
            raise

    def __str__(self) -> str:
        return str(self._claim)

    @property
    def fd(self) -> int:
        return self._claim.fd

    @property
    def namespace_id(self) -> int:
        return self._claim.identity.nsid

    @property
    def first_byte(self) -> int:
        return self.blocks.start * self._claim.identity.format.lba_bytes

    @property
    def chunk_bytes(self) -> int:
        return min(self._chunk_bytes, self._claim.identity.most_chunk_bytes)

    def direct(self) -> bool:
        """Whether the descriptor takes native commands, which have no page cache to pass."""
        return stat.S_ISCHR(os.fstat(self.fd).st_mode)

    def resident_bytes(self) -> int:
        return self._claim.resident_bytes(self.blocks)

    def device_facts(self) -> dict[str, object]:
        """Return what the device reports about itself, and the blocks of this run."""
        return {
            **self._claim.device_facts(),
            "first_lba": self.blocks.start,
            "last_lba": self.blocks.stop - 1,
            "reclaimed_bytes": sum(deallocation.bytes for deallocation in self.reclaimed),
        }

    def close(self, *, in_doubt: bool = False) -> None:
        """Deallocate this run's blocks and close the device.

        With commands `in_doubt`, which may still write, the record stays for the next run, which deallocates.
        """
        if self.fd < 0:
            return
        try:
            if self._record and not in_doubt:
                self.deallocated = self._claim.deallocate(self.blocks)
                self._record.remove()
        finally:
            self._claim.close()

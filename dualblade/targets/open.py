"""Opening the configured target of the direct path."""

from __future__ import annotations

from dualblade.config.storage import StorageConfig
from dualblade.targets.base import Target
from dualblade.targets.block import BlockTarget
from dualblade.targets.file import FileTarget
from dualblade.targets.nvme import NvmeTarget


def open_target(storage: StorageConfig, size_bytes: int) -> Target:
    """Open the configured backend and reserve `size_bytes` on it, from `storage.first_lba` on.

    Raises:
        StorageError: there is no direct I/O or no space, or the device may not be written.
    """
    match storage.backend:
        case "nvme":
            return NvmeTarget(storage, size_bytes)
        case "block":
            return BlockTarget(storage, size_bytes)
        case "file":
            return FileTarget(storage, size_bytes)

"""The disk below a folder: its identity and settings, and its readahead while a run lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualblade.errors import StorageError
from dualblade.linux.block_device import BlockDevice, backing_device
from dualblade.linux.mounts import mount_of, read_mounts
from experiments.machine.journal import Journal


def describe_storage(folder: Path) -> dict[str, Any]:
    """Identity and settings of the storage of a folder, for environment.json."""
    mount = mount_of(folder, read_mounts())
    device = backing_device(mount)
    settings = {**device.identity(), **device.queue()} if device else {"name": None, "model": None, "serial": None}
    return {**settings, "file_system": mount.fs_type, "mount_options": f"{mount.options},{mount.super_options}"}


@contextlib.contextmanager
def readahead(folder: Path, kib: int | None, journal: Journal) -> Iterator[int | None]:
    """Set the readahead of the disk below a folder to `kib` inside the block; yield the value before.

    Raises:
        StorageError: it cannot be set, or does not take effect.
    """
    device = backing_device(mount := mount_of(folder, read_mounts()))
    if device is None:
        if kib is None:
            yield None
            return
        raise StorageError(
            f"storage.directory={folder} lies on {mount.fs_type}, which no block device backs, so its readahead cannot "
            f"be set to {kib} KiB; choose a folder on a disk, or set storage.read_ahead_kb=null"
        )
    before = int(device.read_ahead.read_text())
    if kib is None or kib == before:
        yield before
        return
    with journal.undo("write_value", str(device.read_ahead), str(before)):
        _set_readahead(device, kib, before)
        yield before


def _set_readahead(device: BlockDevice, kib: int, before_kib: int) -> None:
    try:
        device.read_ahead.write_text(str(kib))
    except PermissionError:
        raise StorageError(
            f"readahead of {device.name} is {before_kib} KiB and only root may set it to {kib}; run as root, or set "
            "storage.read_ahead_kb=null to leave and record it"
        ) from None
    if int(device.read_ahead.read_text()) != kib:
        raise StorageError(
            f"{device.read_ahead} reads {device.read_ahead.read_text().strip()} after {kib} was written; choose "
            "another storage.read_ahead_kb"
        )

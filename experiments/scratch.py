"""A run's own folder on the storage under test."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from dualblade.errors import StorageError
from dualblade.mounts import mount_of, read_mounts
from experiments.journal import Journal

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")

# Beside the KV itself: the canary of the cache drop and the file system's own blocks.
SPARE_BYTES = 64 << 20


@contextlib.contextmanager
def scratch_folder(directory: Path, needed_bytes: int, journal: Journal) -> Iterator[Path]:
    """A new folder with room for `needed_bytes`, gone again when the block is left.

    Raises:
        StorageError: no such room, or no disk below it.
    """
    folder = directory.absolute() / f"dualblade-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with journal.undo("remove_tree", str(folder)):
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StorageError(
                f"cannot make a folder in storage.directory={directory}: {error.strerror}; choose a folder that may be "
                "written"
            ) from None
        _check(folder, directory, needed_bytes)
        yield folder


def _check(folder: Path, directory: Path, needed_bytes: int) -> None:
    file_system = mount_of(folder, read_mounts()).fs_type
    if file_system in MEMORY_FILE_SYSTEMS:
        raise StorageError(
            f"storage.directory={directory} lies on {file_system}, which is memory and has no direct I/O; choose a "
            "folder on a disk"
        )
    state = os.statvfs(folder)
    free_bytes = state.f_bavail * state.f_frsize
    if free_bytes < needed_bytes + SPARE_BYTES:
        raise StorageError(
            f"storage.directory={directory} has {free_bytes:,} bytes free and this run needs "
            f"{needed_bytes + SPARE_BYTES:,} for its KV; free some, choose another folder or a larger scale"
        )

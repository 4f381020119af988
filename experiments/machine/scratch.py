"""A run's own folder on the storage under test."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from dualblade.errors import StorageError
from dualblade.linux.mounts import MEMORY_FILE_SYSTEMS, file_system_of
from experiments.machine.journal import Journal

# Beside the KV itself: the canary of the cache drop and the file system's own blocks.
SPARE_BYTES = 64 << 20


@contextlib.contextmanager
def scratch_folder(directory: Path, needed_bytes: int, journal: Journal) -> Iterator[Path]:
    """Yield a new folder with space for `needed_bytes`; it is removed when the block is left.

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
        _check_room(folder, directory, needed_bytes)
        yield folder


def check(directory: Path, needed_bytes: int) -> None:
    """Make the checks of `scratch_folder` on a folder that may not exist yet, without making anything.

    Raises:
        StorageError: no such room, no disk below it, or it may not be written.
    """
    above = directory.absolute()
    existing = next(path for path in (above, *above.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(
            f"cannot make a folder in storage.directory={directory}: {existing} is not a folder that may be written; "
            "choose another"
        )
    _check_room(existing, directory, needed_bytes)


def _check_room(folder: Path, directory: Path, needed_bytes: int) -> None:
    file_system = file_system_of(folder)
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
            f"{needed_bytes + SPARE_BYTES:,}; free some, choose another folder, a larger scale or a smaller io.size_mib"
        )

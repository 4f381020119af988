"""Drop the kernel's clean caches, and prove it on a file that was in memory before."""

from __future__ import annotations

import os
from pathlib import Path

from dualblade.errors import StorageError
from dualblade.linux.page_residency import mincore_bytes

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
CANARY_BYTES = 1 << 20


def drop_caches(folder: Path) -> dict[str, object]:
    """Write back and drop page cache, dentries and inodes; return how, and whether a test file in `folder` was dropped.

    Without root this is not possible. The run then starts with the present cache, but all its own files are new.

    Raises:
        StorageError: the kernel accepted the request and the test file is still in memory.
    """
    os.sync()
    if not os.access(DROP_CACHES, os.W_OK):
        return {"verified": False, "how": f"not done: only root may write {DROP_CACHES}"}
    canary = folder / ".canary"
    _write_through(canary)
    before_bytes = _resident_bytes(canary)
    DROP_CACHES.write_text("3")
    after_bytes = _resident_bytes(canary)
    canary.unlink()
    if not before_bytes or after_bytes:
        raise StorageError(
            f"{after_bytes:,} of {before_bytes:,} bytes of a test file stayed in memory after 3 was written to "
            f"{DROP_CACHES}; choose a storage.directory whose file system lets go of its cache"
        )
    return {"verified": True, "how": f"sync, 3 to {DROP_CACHES}, mincore on a test file"}


def _write_through(path: Path) -> None:
    with open(path, "wb") as file:
        file.write(os.urandom(CANARY_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _resident_bytes(path: Path) -> int:
    with open(path, "r+b") as file:
        return mincore_bytes(file.fileno(), CANARY_BYTES)

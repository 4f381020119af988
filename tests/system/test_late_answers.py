"""Commands that a device answers after they were given up: what they bring is served to nobody.

A block device held back by the kernel (blkio throttle, cgroup v1) is such a device: a read that it has taken cannot be
cancelled, and lands when the limit goes.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dualblade.device_config import ReadAheadConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry
from dualblade.link import HostLink
from dualblade.storage_config import StorageConfig
from dualblade.store import KVStore
from dualblade.variants import VARIANTS

BLKIO = Path("/sys/fs/cgroup/blkio")
GEOMETRY = KVGeometry.uniform(4, 1, 512, batch_size=4, capacity_tokens=1088)
TOKENS = 1024
SLOW, UNLIMITED = 20_000, 0  # bytes/s


class SlowDisk:
    """A limit to the rate at which threads of this process read a disk."""

    def __init__(self, group: Path, device: str) -> None:
        self.group = group
        self._device = device

    def limit(self, bytes_per_s: int) -> None:
        (self.group / "blkio.throttle.read_bps_device").write_text(f"{self._device} {bytes_per_s}")

    def take(self, group: Path | None = None) -> None:
        """All threads that there are now."""
        for thread in threading.enumerate():
            ((group or self.group) / "tasks").write_text(str(thread.native_id))


@pytest.fixture
def slow_disk(disk_path: Path) -> Iterator[SlowDisk]:
    number = os.stat(disk_path).st_dev
    group = BLKIO / f"dualblade-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no blkio cgroup can be made in {BLKIO}: {error.strerror}")
    disk = SlowDisk(group, f"{os.major(number)}:{os.minor(number)}")
    try:
        disk.limit(UNLIMITED)
    except OSError as error:
        group.rmdir()
        pytest.skip(f"the checkout's disk cannot be throttled: {error.strerror}")
    try:
        yield disk
    finally:
        disk.limit(UNLIMITED)
        disk.take(BLKIO)
        group.rmdir()


def rows(fill: float) -> tuple[torch.Tensor, torch.Tensor]:
    k, v = (torch.full((TOKENS, 4, 1, 512), value).half() for value in (fill, fill + 0.5))
    return k, v


@pytest.mark.parametrize("pipeline", ["none", "overlap_full"])
def test_memory_that_a_late_answer_may_reach_is_used_no_more(
    disk_path: Path, slow_disk: SlowDisk, pipeline: str
) -> None:
    """Reads time out and stay with the kernel; whatever needs their memory is refused, before and after they land."""
    storage = StorageConfig("test", str(disk_path), timeout_s=0.5)
    variant = dataclasses.replace(VARIANTS["nvme_direct_only"], pipeline=pipeline)
    ahead = ReadAheadConfig(pieces=64) if pipeline == "overlap_full" else None
    with KVStore(GEOMETRY, storage, link=HostLink(), read_ahead=ahead) as store:
        store.bind(variant, 0)
        for layer in range(4):
            store.prefill(layer, *rows(layer))
        store.synchronize()
        slow_disk.take()
        slow_disk.limit(SLOW)
        for layer in (0, 1):
            with pytest.raises(StorageError, match=r"no answer in time|still owes answers"):
                store.fetch(layer)
        slow_disk.limit(UNLIMITED)
        for _ in range(2):
            with pytest.raises(StorageError, match="close the cache and make it anew"):
                store.fetch(2)
            time.sleep(0.5)  # now they land


def test_a_store_made_anew_works(disk_path: Path, slow_disk: SlowDisk) -> None:
    storage = StorageConfig("test", str(disk_path), timeout_s=0.5)
    for bytes_per_s in (SLOW, UNLIMITED):
        with KVStore(GEOMETRY, storage, link=HostLink()) as store:
            store.bind(VARIANTS["nvme_direct_only"], 0)
            store.prefill(0, *rows(1.0))
            store.synchronize()
            slow_disk.take()
            slow_disk.limit(bytes_per_s)
            if bytes_per_s:
                with pytest.raises(StorageError, match="no answer in time"):
                    store.fetch(0)
                slow_disk.limit(UNLIMITED)
            else:
                k, v = store.fetch(0)
                assert torch.equal(k, rows(1.0)[0]) and torch.equal(v, rows(1.0)[1])

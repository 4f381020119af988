"""Commands that a device answers after they timed out: their data is never returned.

A block device held back by the kernel (blkio throttle, cgroup v1) is such a device: a read that it has taken cannot be
cancelled, and lands when the limit goes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dualblade.config.device import ReadAheadConfig
from dualblade.config.storage import StorageConfig
from dualblade.config.variants import VARIANTS
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry
from dualblade.paths.pinned import PinnedBuffer
from dualblade.paths.ring import Mirror, Ring
from dualblade.pipeline.link import HostLink
from dualblade.store import KVStore

BLKIO = Path("/sys/fs/cgroup/blkio")
GEOMETRY = KVGeometry.uniform(4, 1, 512, batch_size=4, capacity_tokens=1088)
TOKENS = 1024
SLOW, UNLIMITED = 20_000, 0  # bytes/s


class SlowDisk:
    """A limit to the rate at which threads of this process read and write a disk."""

    def __init__(self, group: Path, device: str) -> None:
        self.group = group
        self._device = device

    def limit(self, bytes_per_s: int) -> None:
        for op in ("read", "write"):
            (self.group / f"blkio.throttle.{op}_bps_device").write_text(f"{self._device} {bytes_per_s}")

    def take(self, group: Path | None = None, names: str = "") -> None:
        """Move the present threads to the group, or those whose names begin with `names`."""
        for thread in threading.enumerate():
            if thread.name.startswith(names):
                ((group or self.group) / "tasks").write_text(str(thread.native_id))


@pytest.fixture
def slow_disk(disk_path: Path) -> Iterator[SlowDisk]:
    number = os.stat(disk_path).st_dev
    group, before = BLKIO / f"dualblade-test-{os.getpid()}", own_group()
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
        leave(group, before)


def leave(group: Path, before: Path) -> None:
    """Move all threads out of the group, also those that the kernel starts and ends for a ring."""
    ends_at = time.monotonic() + 30
    while group.is_dir():
        for number in (group / "tasks").read_text().split():
            with contextlib.suppress(OSError):
                (before / "tasks").write_text(number)
        try:
            group.rmdir()
        except OSError:
            assert time.monotonic() < ends_at, "threads stay in the test's cgroup"
            time.sleep(0.05)


def own_group() -> Path:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, controllers, path in lines if "blkio" in controllers.split(",")), "/")
    return BLKIO / own.lstrip("/")


def rows(fill: float, n_tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor]:
    k, v = (torch.full((n_tokens, 4, 1, 512), value).half() for value in (fill, fill + 0.5))
    return k, v


@pytest.mark.parametrize("pipeline", ["none", "overlap_full"])
def test_memory_that_a_late_answer_may_change_is_not_used_again(
    disk_path: Path, slow_disk: SlowDisk, pipeline: str
) -> None:
    """Reads time out in the kernel; transfers that need their memory are refused, before and after they land."""
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
            with pytest.raises(StorageError, match="close the cache and create a new one"):
                store.fetch(2)
            time.sleep(0.5)  # now they land


def test_blocks_that_a_late_write_may_overwrite_are_not_written_again(disk_path: Path, slow_disk: SlowDisk) -> None:
    """Another thread writes rows, so the next prefill does not need its memory; but it needs the same blocks."""
    geometry = KVGeometry.uniform(1, 1, 512, batch_size=4, capacity_tokens=1088)
    with KVStore(geometry, StorageConfig("test", str(disk_path), timeout_s=0.5), link=HostLink()) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        store.prefill(0, *rows(1.0))
        store.synchronize()
        slow_disk.take(names="copy-2")
        slow_disk.take(names="copy-3")
        slow_disk.limit(400)
        store.append(0, *rows(7.0, 1))
        with pytest.raises(StorageError, match="no answer in time"):
            store.synchronize()
        with pytest.raises(StorageError, match="over newer tokens; close the cache and create a new one"):
            store.crop(0)


def test_transfers_that_did_not_time_out_still_arrive(disk_path: Path, slow_disk: SlowDisk) -> None:
    """Mirrored reads: the first times out before the later ones have begun."""
    size_bytes, chunk_bytes = 256 << 10, 64 << 10
    content = os.urandom(4 * size_bytes)
    (disk_path / "file").write_bytes(content)
    fd = os.open(disk_path / "file", os.O_RDONLY | os.O_DIRECT)
    staging, target = PinnedBuffer(4 * chunk_bytes), PinnedBuffer(len(content))
    slow_disk.take()
    slow_disk.limit(4 * chunk_bytes)  # a command each 0.25 s
    outcomes = []
    with Ring(fd, "it", queue_depth=4, first_byte=0, end_byte=len(content), block_bytes=4096) as ring:
        reads = []
        for offset in range(0, len(content), size_bytes):
            mirror = Mirror(target.address + offset, 0, size_bytes, staging.size_bytes)
            reads.append(ring.start("read", staging, staging.address, offset, size_bytes, chunk_bytes, mirror))
        for read, timeout_s in zip(reads, (0.1, 5.0, 5.0, 5.0), strict=True):
            try:
                ring.wait(read, timeout_s)
                outcomes.append("came")
            except StorageError as error:
                outcomes.append("given up" if "no answer in time" in str(error) else str(error))
        slow_disk.limit(UNLIMITED)
    os.close(fd)
    came = [turn for turn, outcome in enumerate(outcomes) if outcome == "came"]
    assert set(outcomes) == {"came", "given up"} and came == list(range(came[0], 4))
    for turn in came:
        span = slice(turn * size_bytes, (turn + 1) * size_bytes)
        assert target.data[span].numpy().tobytes() == content[span]


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

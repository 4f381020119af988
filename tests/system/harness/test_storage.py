"""Storage of a run against the kernel: readahead, scratch folders, and a cache drop that is proven."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from dualblade.errors import StorageError
from dualblade.linux.block_device import BlockDevice, backing_device
from dualblade.linux.mounts import mount_of, read_mounts
from dualblade.linux.page_residency import mincore_bytes
from experiments.machine import caches
from experiments.machine.dirty_pages import VM, held_to_budget
from experiments.machine.journal import Journal
from experiments.machine.scratch import SPARE_BYTES, scratch_folder
from experiments.machine.storage_settings import describe_storage, readahead

MIB = 1 << 20
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may change readahead and dirty limits, or drop caches"
)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.json")


@pytest.fixture
def device(disk_path: Path) -> BlockDevice:
    device = backing_device(mount_of(disk_path, read_mounts()))
    if device is None:
        pytest.skip("no block device backs the checkout")
    return device


@needs_root
def test_readahead_is_set_for_a_while(disk_path: Path, device: BlockDevice, journal: Journal) -> None:
    before = int(device.read_ahead.read_text())
    with readahead(disk_path, before // 2, journal) as found:
        assert found == before
        assert int(device.read_ahead.read_text()) == before // 2
        assert describe_storage(disk_path)["read_ahead_kb"] == str(before // 2)
    assert int(device.read_ahead.read_text()) == before


def test_readahead_is_left_alone_unless_asked_for(disk_path: Path, device: BlockDevice, journal: Journal) -> None:
    before = int(device.read_ahead.read_text())
    with readahead(disk_path, None, journal) as found:
        assert found == before == int(device.read_ahead.read_text())


@needs_root
def test_the_kernel_holds_writers_back_at_its_shares_of_the_budget(journal: Journal) -> None:
    """The thresholds that it works with are its own counters; it rounds them to pages."""
    settings = [VM / f"{name}_{unit}" for name in ("dirty", "dirty_background") for unit in ("ratio", "bytes")]
    before = [file.read_text() for file in settings]
    with held_to_budget(1 << 30, 1, journal) as held:
        assert thresholds_bytes() == pytest.approx((held["dirty_bytes"], held["dirty_background_bytes"]), abs=8192)
        assert held["dirty_background_bytes"] < held["dirty_bytes"] < 1 << 29
    assert [file.read_text() for file in settings] == before


def test_the_kernel_needs_no_help_with_a_cgroup_of_version_2(journal: Journal) -> None:
    before = thresholds_bytes()
    with held_to_budget(64 << 20, 2, journal) as held:
        assert held == {"by": "the cgroup"}
        assert thresholds_bytes() == pytest.approx(before, rel=0.2)  # shares of what is free at the moment


def thresholds_bytes() -> tuple[int, int]:
    """Dirty memory at which a writer waits, and at which writeback starts (proc(5), vmstat)."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    names = ("nr_dirty_threshold", "nr_dirty_background_threshold")
    waits_bytes, starts_bytes = (int(counters[name]) * mmap.PAGESIZE for name in names)
    return waits_bytes, starts_bytes


def test_readahead_without_a_disk_is_refused(journal: Journal) -> None:
    with (
        pytest.raises(StorageError, match=r"tmpfs.*storage.read_ahead_kb=null"),
        readahead(Path("/dev/shm"), 128, journal),
    ):
        pass


def test_the_disk_is_named_by_the_kernels_own_number(disk_path: Path, device: BlockDevice) -> None:
    major, minor = (int(part) for part in (device.sysfs / "dev").read_text().split(":"))
    number = os.stat(disk_path).st_dev
    partitions = [path.parent for path in device.sysfs.glob("*/partition")]
    numbers = {(path / "dev").read_text().strip() for path in [device.sysfs, *partitions]}
    assert f"{major}:{minor}" in numbers
    assert f"{os.major(number)}:{os.minor(number)}" in numbers or os.major(number) == 0


def test_a_scratch_folder_lives_as_long_as_its_run(disk_path: Path, journal: Journal) -> None:
    with scratch_folder(disk_path / "kv", MIB, journal) as folder:
        (folder / "kv").write_bytes(bytes(MIB))
        assert folder.parent == disk_path / "kv"
    assert list((disk_path / "kv").iterdir()) == []


def test_a_full_disk_is_refused_with_what_is_free_and_needed(disk_path: Path, journal: Journal) -> None:
    needed = 1 << 60
    with pytest.raises(StorageError, match=f"{needed + SPARE_BYTES:,}"), scratch_folder(disk_path, needed, journal):
        pass
    assert list(disk_path.iterdir()) == []


def test_a_file_system_in_memory_is_refused(journal: Journal) -> None:
    with pytest.raises(StorageError, match="tmpfs"), scratch_folder(Path("/dev/shm/dualblade-test"), 1, journal):
        pass
    Path("/dev/shm/dualblade-test").rmdir()


def resident_bytes(path: Path) -> int:
    with open(path, "r+b") as file:
        return mincore_bytes(file.fileno(), path.stat().st_size)


def test_residency_is_what_was_read(disk_path: Path) -> None:
    file = disk_path / "file"
    file.write_bytes(os.urandom(4 * MIB))
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident_bytes(file) == 0
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
    os.pread(descriptor, MIB, MIB)
    os.close(descriptor)
    assert resident_bytes(file) == MIB


@needs_root
def test_a_cache_drop_drops_and_proves_it(disk_path: Path) -> None:
    file = disk_path / "file"
    file.write_bytes(os.urandom(4 * MIB))
    assert resident_bytes(file) == 4 * MIB
    assert caches.drop_caches(disk_path)["verified"]
    assert resident_bytes(file) == 0
    assert [path.name for path in disk_path.iterdir()] == ["file"]


def test_a_cache_drop_that_drops_nothing_is_found_out(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ineffective = disk_path / "drop_caches"
    ineffective.touch()
    monkeypatch.setattr(caches, "DROP_CACHES", ineffective)
    with pytest.raises(StorageError, match=r"1,048,576 of 1,048,576 bytes"):
        caches.drop_caches(disk_path)


def test_without_permission_the_caches_stay_and_the_result_says_so(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "DROP_CACHES", disk_path / "absent")
    assert not caches.drop_caches(disk_path)["verified"]

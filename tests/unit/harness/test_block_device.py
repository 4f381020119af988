"""The disk below a folder, on a made-up sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualblade.linux.block_device import BlockDevice


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """An NVMe disk with a partition, and a mapping over that partition."""
    disk = tmp_path / "devices/nvme0n1"
    partition = disk / "nvme0n1p2"
    mapping = tmp_path / "devices/dm-0"
    for folder in (
        partition,
        disk / "queue",
        disk / "device",
        mapping / "queue",
        mapping / "slaves",
        tmp_path / "dev/block",
    ):
        folder.mkdir(parents=True)
    (partition / "partition").write_text("2\n")
    (disk / "device/model").write_text("Samsung SSD 990 PRO 2TB   \n")
    (disk / "device/serial").write_text("S7KHNJ0W\n")
    (disk / "queue/read_ahead_kb").write_text("128\n")
    (mapping / "queue/read_ahead_kb").write_text("256\n")
    (mapping / "slaves/nvme0n1p2").symlink_to(partition)
    (tmp_path / "dev/block/259:2").symlink_to(partition)
    (tmp_path / "dev/block/253:0").symlink_to(mapping)
    return tmp_path


def test_a_partition_stands_for_its_disk(sysfs: Path) -> None:
    device = BlockDevice.of_number(259, 2, sysfs)
    assert device.identity() == {"name": "nvme0n1", "model": "Samsung SSD 990 PRO 2TB", "serial": "S7KHNJ0W"}
    assert device.queue()["read_ahead_kb"] == "128"


def test_a_mapping_has_a_queue_of_its_own_but_the_disks_identity(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = BlockDevice.of_number(253, 0, sysfs)
    assert device.queue()["read_ahead_kb"] == "256"
    assert device.identity()["name"] == "dm-0"
    assert device.identity()["serial"] == "S7KHNJ0W"


def test_what_a_device_does_not_tell_is_null(sysfs: Path) -> None:
    assert BlockDevice.of_number(259, 2, sysfs).queue()["scheduler"] is None

"""A real file read through the page cache: every request of it is seen on its whole way down, in the right order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dualblade.linux.block_device import backing_device
from dualblade.linux.fiemap import locate
from dualblade.linux.mounts import mount_of, read_mounts
from traces.capture import check_available, tracing
from traces.decode import decode
from traces.errors import TraceError
from traces.formats import io_layers

SIZE_BYTES = 16 << 20
READ_MAPPED = """
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
    sum(data[::4096])
"""

try:
    check_available()
except TraceError as error:
    pytestmark = pytest.mark.skip(reason=str(error))


def test_a_mapped_read_is_seen_at_each_layer(disk_path: Path) -> None:
    device = backing_device(mount := mount_of(disk_path, read_mounts()))
    if device is None or mount.fs_type != "ext4":
        pytest.skip("the checkout is not on ext4 on a disk, whose look-ups the trace sees")
    path, raw = disk_path / "data", disk_path / "t.txt"
    path.write_bytes(os.urandom(SIZE_BYTES))
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    place = locate(fd, 0, SIZE_BYTES)
    os.close(fd)
    disk = device.disk()
    with tracing("io_layers", raw, [disk.number], disks=[disk.name], log=disk_path / "t.log") as tracer:
        begin_ns = time.monotonic_ns()
        subprocess.run([sys.executable, "-c", READ_MAPPED, str(path)], check=True)
        end_ns = time.monotonic_ns()
        tracer.stop()
    info = decode(raw, disk_path / "device_io.parquet")
    io_layers.write(raw, disk_path / "io_layers.parquet")
    assert info.valid, info.reason
    commands = pq.read_table(disk_path / "device_io.parquet").to_pandas()
    stamps = pq.read_table(disk_path / "io_layers.parquet").to_pandas()
    seen = commands.merge(stamps, on=["offset_bytes", "issue_ns"])
    ours = seen[
        (seen["op"] == "read") & sum(_inside(seen["offset_bytes"], piece) for piece in place.pieces).astype(bool)
    ]
    assert ours["bytes"].sum() >= 0.98 * SIZE_BYTES  # of probes the kernel may skip one in a hundred
    way = ours[["enter_ns", "queue_ns", "issue_ns", "complete_ns"]]
    whole = (way.diff(axis=1).iloc[:, 1:] >= 0).all(axis=1) & way["enter_ns"].between(begin_ns, end_ns)
    assert whole.mean() >= 0.95
    looked_up = ours[ours["fs_ns"] > 0]
    assert len(looked_up) and looked_up["fs_ns"].between(looked_up["enter_ns"], looked_up["queue_ns"]).all()


def _inside(offsets, piece):  # type: ignore[no-untyped-def]
    return offsets.between(piece.device_offset_bytes, piece.device_offset_bytes + piece.size_bytes - 1)

"""The page-cache path on a real file system whose disk fails: an error, and never wrong bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import Worker
from dualblade.paths.page_cache import PageCache
from dualblade.paths.pinned import PinnedBuffer
from dualblade.units import MIB

GEOMETRY = KVGeometry.uniform(1, 1, 512, batch_size=4, capacity_tokens=1024)
K, V = GEOMETRY.tensors
ROW_BYTES = GEOMETRY.tensors[K].row_bytes
ROWS = range(1000)


@dataclasses.dataclass
class Disk:
    """A file system on an image that lies in a memory of limited size."""

    folder: Path
    image: Path

    def refuse_writes(self) -> None:
        """Give the image no more space, so that new blocks cannot be written."""
        with contextlib.suppress(OSError), open(self._filler, "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def take_writes(self) -> None:
        self._filler.unlink()

    def refuse_reads(self) -> None:
        os.truncate(self.image, MIB)

    @property
    def _filler(self) -> Path:
        return self.image.with_name("filler")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    memory, folder = tmp_path / "memory", tmp_path / "folder"
    with contextlib.ExitStack() as stack:
        for point in (memory, folder):
            point.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=32m", "none", memory)
        stack.callback(undo, "umount", memory)
        image = memory / "image"
        with open(image, "wb") as file:
            file.truncate(64 * MIB)
        run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard", image)
        device = run("losetup", "--find", "--show", image)
        stack.callback(undo, "losetup", "--detach", device)
        run("mount", "-o", "errors=continue", device, folder)
        stack.callback(undo, "umount", folder)
        yield Disk(folder, image)


def undo(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be made to fail here: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture(params=["mmap", "rw"])
def path(request: pytest.FixtureRequest, disk: Disk) -> Iterator[PageCache]:
    path = PageCache(GEOMETRY, [0], StorageConfig("test", str(disk.folder), page_cache_io=request.param), evict=False)
    yield path
    path.close()


@pytest.fixture
def buffer() -> PinnedBuffer:
    return PinnedBuffer(GEOMETRY.tensors[K].size_bytes)


def filled(buffer: PinnedBuffer) -> torch.Tensor:
    """Random rows in the buffer, and a copy of them."""
    buffer.data.random_(1, 256)
    return buffer.data[: len(ROWS) * ROW_BYTES].clone()


def write_back_and_drop(path: PageCache, tensor: TensorId) -> None:
    """Do what the kernel does by itself; it reports an error to this open file and to the path's own."""
    other = os.open(f"/proc/self/fd/{path._files[tensor].fd}", os.O_RDWR)
    with contextlib.suppress(OSError):
        os.fsync(other)
    os.posix_fadvise(other, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(other)


def test_rows_that_were_never_written_back_are_not_served_as_zeros(
    disk: Disk, path: PageCache, buffer: PinnedBuffer
) -> None:
    kept = filled(buffer)
    path.write(K, ROWS, Worker(0, buffer))
    write_back_and_drop(path, K)
    filled(buffer)
    disk.refuse_writes()
    path.write(V, ROWS, Worker(0, buffer))
    write_back_and_drop(path, V)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"could not write back the file of layer 0 V .*tokens in it are lost"):
            path.read(V, ROWS, Worker(0, buffer))
    with pytest.raises(StorageError, match="could not write back"):
        path.write(V, range(1000, 1001), Worker(0, buffer))
    path.read(K, ROWS, Worker(0, buffer))
    assert torch.equal(buffer.data[: len(kept)], kept)

    disk.take_writes()
    path.crop(V, 500, Worker(0, buffer))
    with pytest.raises(StorageError, match="could not write back"):
        path.read(V, range(500), Worker(0, buffer))
    path.crop(V, 0, Worker(0, buffer))
    kept = filled(buffer)
    path.write(V, ROWS, Worker(0, buffer))
    write_back_and_drop(path, V)
    path.read(V, ROWS, Worker(0, buffer))
    assert torch.equal(buffer.data[: len(kept)], kept)


def test_a_read_that_fails_is_an_error_and_not_the_end_of_the_process(
    disk: Disk, path: PageCache, buffer: PinnedBuffer
) -> None:
    path.write(K, ROWS, Worker(0, buffer))
    write_back_and_drop(path, K)
    disk.refuse_reads()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"cannot read the file of layer 0 K in .*: Input/output error"):
            path.read(K, ROWS, Worker(0, buffer))
    with pytest.raises(StorageError, match=r"cannot write the file of layer 0 K in .*: Input/output error"):
        path._files[K].write(100 * ROW_BYTES + 100, buffer.data[:100])  # the rest of that page has to be read first


def test_a_file_cut_short_is_an_error(path: PageCache, buffer: PinnedBuffer) -> None:
    path.write(K, ROWS, Worker(0, buffer))
    os.truncate(f"/proc/self/fd/{path._files[K].fd}", 10 * ROW_BYTES)
    with pytest.raises(StorageError, match=r"layer 0 K in .*: it ends at byte 40,960: is another program"):
        path.read(K, ROWS, Worker(0, buffer))


def test_a_file_system_that_hides_such_failures_gets_a_warning(disk: Disk, tmp_path: Path) -> None:
    lower, upper, work, merged = (tmp_path / "lower", disk.folder / "upper", disk.folder / "work", tmp_path / "merged")
    for folder in (lower, upper, work, merged):
        folder.mkdir()
    run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay", merged)
    try:
        with pytest.warns(RuntimeWarning, match="lies on overlay, where this kernel does not report"):
            PageCache(GEOMETRY, [0], StorageConfig("test", str(merged)), evict=False).close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            PageCache(GEOMETRY, [0], StorageConfig("test", str(merged), checksum=True), evict=False).close()
            PageCache(GEOMETRY, [0], StorageConfig("test", str(merged)), evict=True).close()
            PageCache(GEOMETRY, [0], StorageConfig("test", str(disk.folder)), evict=False).close()
    finally:
        undo("umount", merged)

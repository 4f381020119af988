"""Both residency paths against a plain array: any row size, any sequence of appends, crops and reads."""

from __future__ import annotations

import dataclasses
import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.page_residency import mincore_bytes, resident_bytes
from dualblade.paths.base import Worker
from dualblade.paths.direct import NvmeDirect
from dualblade.paths.page_cache import PageCache
from dualblade.paths.pinned import PinnedBuffer, pinned_state
from tests.support.checkout import CHECKOUT

LAYERS = 2


def storage(directory: Path, **changes: object) -> StorageConfig:
    return dataclasses.replace(StorageConfig("test", str(directory), chunk_bytes=8192, queue_depth=3), **changes)  # type: ignore[arg-type]


def open_path(name: str, geometry: KVGeometry, directory: Path, worker: Worker | None = None) -> NvmeDirect | PageCache:
    layers = range(geometry.n_layers)
    if name == "direct":
        return NvmeDirect(geometry, layers, storage(directory), [worker or Worker(0, PinnedBuffer(1))])
    io, _, evict = name.partition("+")
    return PageCache(geometry, layers, storage(directory, page_cache_io=io), evict=bool(evict))


actions = st.lists(
    st.tuples(st.sampled_from(["append", "append", "crop"]), st.integers(0, 3), st.integers(0, 40)), max_size=12
)


@pytest.mark.parametrize("name", ["direct", "mmap", "rw", "mmap+evict", "rw+evict"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head_dim=st.integers(1, 700), batch=st.integers(1, 4), actions=actions, seed=st.integers(0, 2**32))
def test_rows_come_back_as_they_were_written(
    name: str, disk_path: Path, head_dim: int, batch: int, actions: list[tuple[str, int, int]], seed: int
) -> None:
    geometry = KVGeometry.uniform(LAYERS, 1, head_dim, batch_size=batch, capacity_tokens=100)
    row_bytes = geometry.tensors[TensorId(0, "k")].row_bytes
    worker = Worker(0, PinnedBuffer(100 * row_bytes + 2 * 4096))
    buffer = worker.buffer
    model: dict[TensorId, torch.Tensor] = {t: torch.empty(0, row_bytes, dtype=torch.uint8) for t in geometry.tensors}
    torch.manual_seed(seed)
    path = open_path(name, geometry, disk_path, worker)
    try:
        for action, which, amount in actions:
            tensor = list(model)[which]
            length = len(model[tensor])
            if action == "crop":
                model[tensor] = model[tensor][:amount]
                path.crop(tensor, len(model[tensor]), worker)
            elif amount and length + amount <= 100:
                rows = torch.randint(0, 256, (amount, row_bytes), dtype=torch.uint8)
                model[tensor] = torch.cat([model[tensor], rows])
                lead = path.lead_bytes(tensor, length)
                buffer.data.random_(0, 256)
                buffer.data[lead : lead + rows.numel()] = rows.view(-1)
                path.write(tensor, range(length, length + amount), worker)
            for other, expected in model.items():
                first = min(which, len(expected))
                wanted = expected[first:]
                if len(wanted):
                    path.read(other, range(first, len(expected)), worker)
                    lead = path.lead_bytes(other, first)
                    assert torch.equal(buffer.data[lead : lead + wanted.numel()], wanted.reshape(-1)), (other, action)
    finally:
        path.close()


def test_the_direct_path_leaves_nothing_in_the_page_cache_and_evict_takes_everything_out(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(1, 4, 64, batch_size=4, capacity_tokens=512)
    tensor, rows = TensorId(0, "k"), range(512)
    worker = Worker(0, PinnedBuffer(geometry.tensors[tensor].size_bytes + 8192))
    resident = {}
    for name in ("direct", "mmap", "mmap+evict", "rw+evict"):
        path = open_path(name, geometry, disk_path, worker)
        path.write(tensor, rows, worker)
        path.read(tensor, rows, worker)
        fd = path.target.fd if isinstance(path, NvmeDirect) else path._files[tensor].fd
        resident[name] = mincore_bytes(fd, geometry.tensors[tensor].size_bytes)
        assert resident_bytes(fd) == resident[name]
        if isinstance(path, NvmeDirect):
            assert path.io_mode()["o_direct"] is True
        elif path.evictions:
            assert path.eviction.asked_bytes == 2 * geometry.tensors[tensor].size_bytes
            assert path.eviction.left_bytes == 0
        path.close()
    size = geometry.tensors[tensor].size_bytes
    assert resident == {"direct": 0, "mmap": size, "mmap+evict": 0, "rw+evict": 0}


def test_space_is_reserved_before_the_start_and_given_back_at_the_end(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(4, 32, 128, batch_size=4, capacity_tokens=64)

    def free_bytes() -> int:
        os.sync()
        status = os.statvfs(disk_path)
        return status.f_bfree * status.f_frsize

    for name in ("direct", "mmap"):
        path = open_path(name, geometry, disk_path)
        fds = [path.target.fd] if isinstance(path, NvmeDirect) else [file.fd for file in path._files.values()]
        assert sum(os.fstat(fd).st_blocks for fd in fds) * 512 >= geometry.working_set_bytes
        assert list(disk_path.iterdir()) == []  # so a killed process leaves nothing either
        path.close()
        with pytest.raises(OSError):
            os.fstat(fds[0])


def test_more_than_the_disk_holds_is_refused_with_the_numbers(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(40, 32, 128, batch_size=1024, capacity_tokens=1_000_000)
    with pytest.raises(
        StorageError, match=r"cannot reserve [\d,]+ bytes .*: (No space left|File too large).*bytes free"
    ):
        open_path("direct", geometry, disk_path)
    with pytest.raises(StorageError, match=r"cannot reserve [\d,]+ bytes for layer 0 K"):
        open_path("mmap", geometry, disk_path)
    assert list(disk_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("direct", "which has no direct I/O; choose a folder on ext4"),
        ("mmap", "which is memory, .*; choose a folder on a disk"),
        ("rw+evict", "which is memory, .*; choose a folder on a disk"),
    ],
)
def test_a_file_system_in_memory_is_refused(name: str, words: str) -> None:
    geometry = KVGeometry.uniform(1, 1, 8, batch_size=1, capacity_tokens=8)
    with pytest.raises(StorageError, match=f"tmpfs, {words}"):
        open_path(name, geometry, Path("/dev/shm"))


def test_pinned_memory_is_what_the_kernel_says_it_is() -> None:
    buffers = [PinnedBuffer(5 << 20), PinnedBuffer(3 << 20)]
    state = pinned_state(buffers)
    assert (state.buffers, state.bytes) == (2, (6 + 4) << 20)
    assert state.huge_page_bytes <= state.bytes
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    locked_kib = int(status["VmLck"].split()[0])
    assert state.locked == (locked_kib << 10 >= state.bytes)


def test_memory_that_may_not_be_locked_works_with_a_warning() -> None:
    """Run in a process of its own, without the right to raise the memlock limit."""
    program = """
import os, resource, warnings
from dualblade.geometry import KVGeometry
from dualblade.config.storage import StorageConfig
from dualblade.store import KVStore

resource.setrlimit(resource.RLIMIT_MEMLOCK, (3 << 20, 3 << 20))
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
warnings.simplefilter("always")
with KVStore(KVGeometry.uniform(1, 1, 8, batch_size=1, capacity_tokens=8), StorageConfig("test", ".")) as store:
    print(store.pinned.locked)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "they take 12,582,912 bytes and this process may lock 3,145,728 bytes" in done.stderr
    assert "ulimit -l 12288" in done.stderr


def test_huge_pages_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutHugePages(mmap.mmap):
        """madvise(2) without CONFIG_TRANSPARENT_HUGEPAGE."""

        def madvise(self, option: int, *args: int) -> None:
            if option == mmap.MADV_HUGEPAGE:
                raise OSError(errno.EINVAL, "Invalid argument")
            super().madvise(option, *args)

    monkeypatch.setattr("dualblade.paths.pinned.mmap.mmap", WithoutHugePages)
    buffer = PinnedBuffer(4096)
    assert not buffer.data.any()

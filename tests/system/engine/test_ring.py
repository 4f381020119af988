"""The transfer loop against plain file calls, and its answers when the kernel fails."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualblade.config.storage import PaceConfig
from dualblade.errors import StorageError
from dualblade.paths.pinned import PinnedBuffer
from dualblade.paths.ring import DeviceClock, Mirror, Op, Ring

BLOCK = 4096
FILE_BYTES = 256 * BLOCK


@pytest.fixture
def fd(disk_path: Path) -> Iterator[int]:
    """A direct descriptor of a file of random bytes."""
    path = disk_path / "target"
    path.write_bytes(os.urandom(FILE_BYTES))
    descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(scope="module")
def buffer() -> PinnedBuffer:
    return PinnedBuffer(FILE_BYTES)


def ring_on(
    fd: int, first_byte: int = 0, end_byte: int = FILE_BYTES, queue_depth: int = 4, clock: DeviceClock | None = None
) -> Ring:
    return Ring(
        fd,
        "the target",
        queue_depth=queue_depth,
        first_byte=first_byte,
        end_byte=end_byte,
        block_bytes=BLOCK,
        clock=clock,
    )


def move(
    ring: Ring, op: Op, buffer: PinnedBuffer, blocks: range, chunk_blocks: int = 16, timeout_s: float = 30
) -> None:
    size = len(blocks) * BLOCK
    ring.wait(ring.start(op, buffer, buffer.address, blocks.start * BLOCK, size, chunk_blocks * BLOCK), timeout_s)


def content(fd: int) -> bytes:
    """The file as an ordinary program sees it."""
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 255), st.integers(1, 256), st.integers(1, 300), st.integers(1, 33), st.integers(0, 2**32))
def test_every_byte_moves_and_no_other(
    fd: int, buffer: PinnedBuffer, first: int, n_blocks: int, chunk_blocks: int, queue_depth: int, seed: int
) -> None:
    blocks = range(first, min(first + n_blocks, 256))
    span = slice(blocks.start * BLOCK, blocks.stop * BLOCK)
    torch.manual_seed(seed)
    buffer.data.random_(0, 256)
    before = bytearray(content(fd))
    with ring_on(fd, queue_depth=queue_depth) as ring:
        move(ring, "write", buffer, blocks, chunk_blocks)
        before[span] = bytes(buffer.data[: len(blocks) * BLOCK].numpy())
        assert content(fd) == before
        buffer.data.zero_()
        move(ring, "read", buffer, blocks, chunk_blocks)
        assert bytes(buffer.data[: len(blocks) * BLOCK].numpy()) == before[span]
        n_commands = -(-len(blocks) // chunk_blocks)
        assert ring.stats["read"].commands == n_commands
        assert 1 <= (ring.stats["read"].mean_depth or 0) <= min(queue_depth, n_commands)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 255), st.integers(1, 256), st.integers(1, 40), st.integers(1, 9), st.integers(0, 12), st.data())
def test_a_mirror_gets_only_its_bytes_through_little_staging(
    fd: int,
    buffer: PinnedBuffer,
    first: int,
    n_blocks: int,
    chunk_blocks: int,
    queue_depth: int,
    spare_blocks: int,
    data: st.DataObject,
) -> None:
    staging_blocks = queue_depth + spare_blocks
    blocks = range(first, min(first + n_blocks, 256))
    size = len(blocks) * BLOCK
    start, end = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    target = torch.full((size + 2,), 0xA5, dtype=torch.uint8)
    mirror = Mirror(target.data_ptr() + 1, start, end - start, staging_blocks * BLOCK)
    buffer.data.fill_(0x5A)
    with ring_on(fd, queue_depth=queue_depth) as ring:
        chunk = chunk_blocks * BLOCK
        ring.wait(ring.start("read", buffer, buffer.address, blocks.start * BLOCK, size, chunk, mirror), 30)
    offset = blocks.start * BLOCK
    assert bytes(target[1 : 1 + end - start].numpy()) == content(fd)[offset + start : offset + end]
    assert set(target[1 + end - start :].tolist()) | {int(target[0])} == {0xA5}
    assert not buffer.data[staging_blocks * BLOCK :].ne(0x5A).any()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 8), st.integers(1, 9), st.integers(1, 12), st.data())
def test_transfers_that_wait_in_line_each_move_their_own_bytes(
    fd: int, buffer: PinnedBuffer, n_transfers: int, queue_depth: int, chunk_blocks: int, data: st.DataObject
) -> None:
    """Reads and writes of disjoint parts of the file, some of them beyond the owned bytes, waited for in any order."""
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    buffer.data.random_(0, 256)
    cuts = sorted(data.draw(st.lists(st.integers(0, 256), min_size=n_transfers + 1, max_size=n_transfers + 1)))
    parts = [slice(first * BLOCK, end * BLOCK) for first, end in itertools.pairwise(cuts)]
    ops: list[Op] = data.draw(st.lists(st.sampled_from(["read", "write"]), min_size=n_transfers, max_size=n_transfers))
    owned_end = data.draw(st.integers(1, 256)) * BLOCK
    disk, memory = bytearray(content(fd)), bytearray(buffer.data[:FILE_BYTES].numpy())
    with ring_on(fd, end_byte=owned_end, queue_depth=queue_depth) as ring:
        started = [
            (op, part, ring.start(op, buffer, buffer.address + part.start, part.start, part.stop - part.start, chunk))
            for op, part, chunk in zip(ops, parts, [chunk_blocks * BLOCK] * n_transfers, strict=True)
        ]
        for op, part, pending in data.draw(st.permutations(started)):
            if part.stop > owned_end and part.stop > part.start:
                with pytest.raises(StorageError, match="outside the extents"):
                    ring.wait(pending, 30)
                if op == "read":  # bytes within the owned range may have arrived
                    memory[part] = bytes(buffer.data[part].numpy())
                disk[part.start : owned_end] = content(fd)[part.start : owned_end]
                continue
            ring.wait(pending, 30)
            if op == "write":
                disk[part] = memory[part]
            else:
                memory[part] = disk[part]
    assert content(fd) == disk
    assert bytes(buffer.data[:FILE_BYTES].numpy()) == memory


def test_the_next_transfer_is_in_flight_when_a_wait_returns(fd: int, buffer: PinnedBuffer) -> None:
    """Depth at issue shows it: with transfers of one command each, the queue is as deep as transfers are waiting."""
    with ring_on(fd, queue_depth=4) as ring:
        pending = [ring.start("read", buffer, buffer.address, 0, BLOCK, BLOCK) for _ in range(40)]
        for transfer in pending:
            ring.wait(transfer, 30)
        assert ring.stats["read"].commands == 40
        assert (ring.stats["read"].mean_depth or 0) > 2


def test_a_ring_closed_with_transfers_in_line_leaves_their_memory_alone(fd: int, buffer: PinnedBuffer) -> None:
    with ring_on(fd) as ring:
        first = ring.start("read", buffer, buffer.address, 0, FILE_BYTES // 2, BLOCK)
        ring.start("read", buffer, buffer.address, FILE_BYTES // 2, FILE_BYTES // 2, BLOCK)
        ring.wait(first, 30)
    buffer.data.fill_(0x5A)
    os.fsync(fd)
    assert not buffer.data.ne(0x5A).any()


def test_a_paced_device_is_not_faster_than_stated_and_gives_no_credit_for_idle_time(
    fd: int, buffer: PinnedBuffer
) -> None:
    """Two rings share the device's clock; the bounds hold on any machine, however slow."""
    clock = DeviceClock(PaceConfig("slow", read_gb_per_s=0.02, write_gb_per_s=0.04, latency_us=2000))
    with contextlib.ExitStack() as stack:
        rings = [stack.enter_context(ring_on(fd, clock=clock)) for _ in range(2)]
        time.sleep(0.05)  # idle time, which must not count
        start_s = time.monotonic()
        pending = [ring.start("read", buffer, buffer.address, 0, FILE_BYTES // 2, 16 * BLOCK) for ring in rings]
        for ring, transfer in zip(rings, pending, strict=True):
            ring.wait(transfer, 30)
        assert time.monotonic() - start_s >= FILE_BYTES / 0.02e9 + 0.002
        start_s = time.monotonic()
        move(rings[0], "write", buffer, range(128))
        assert time.monotonic() - start_s >= FILE_BYTES / 2 / 0.04e9 + 0.002
    assert bytes(buffer.data[: FILE_BYTES // 2].numpy()) == content(fd)[: FILE_BYTES // 2]


@pytest.mark.parametrize("blocks", [range(0, 10), range(9, 12), range(18, 22), range(30, 40)])
def test_commands_outside_the_owned_bytes_never_reach_the_device(fd: int, buffer: PinnedBuffer, blocks: range) -> None:
    before = content(fd)
    buffer.data.zero_()
    with ring_on(fd, 10 * BLOCK, 20 * BLOCK) as ring, pytest.raises(StorageError, match="outside the extents"):
        move(ring, "write", buffer, blocks, chunk_blocks=100)
    assert content(fd) == before


def test_a_transfer_that_ends_early_raises(fd: int, buffer: PinnedBuffer) -> None:
    """A file that ends within the third command gives a short completion, then none."""
    os.truncate(f"/proc/self/fd/{fd}", 40 * BLOCK)
    with ring_on(fd) as ring:
        with pytest.raises(StorageError, match=rf"failed at byte {40 * BLOCK:,}.*ENODATA"):
            move(ring, "read", buffer, range(44))
        assert ring.stats["read"].commands == 4  # three, and the rest of the short one
        move(ring, "read", buffer, range(40))  # and the ring is still good


def test_a_file_that_ends_inside_a_block_raises(fd: int, buffer: PinnedBuffer) -> None:
    os.truncate(f"/proc/self/fd/{fd}", 40 * BLOCK + 100)
    with ring_on(fd) as ring, pytest.raises(StorageError, match="EIO"):
        move(ring, "read", buffer, range(44))


def test_a_refused_write_raises_with_the_kernels_reason(fd: int, buffer: PinnedBuffer) -> None:
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT)
    with ring_on(read_only) as ring, pytest.raises(StorageError, match=errno.errorcode[errno.EBADF]):
        move(ring, "write", buffer, range(64))
    os.close(read_only)


def test_a_device_that_never_answers_is_given_up_at_the_deadline(buffer: PinnedBuffer) -> None:
    """An empty pipe answers no read; the commands are cancelled, so the memory may be used again."""
    reader, writer = os.pipe()
    with ring_on(reader) as ring:
        with pytest.raises(StorageError, match=r"ETIMEDOUT.*storage\.timeout_s"):
            move(ring, "read", buffer, range(64), timeout_s=0.05)
        assert ring._result.in_flight == 0
    os.close(reader)
    os.close(writer)


def test_signals_do_not_disturb_a_transfer(fd: int, buffer: PinnedBuffer) -> None:
    received = []
    previous = signal.signal(signal.SIGALRM, lambda *_: received.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with ring_on(fd) as ring:
            while len(received) < 50:
                move(ring, "read", buffer, range(256), chunk_blocks=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert bytes(buffer.data[:FILE_BYTES].numpy()) == content(fd)

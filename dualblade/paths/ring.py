"""An io_uring that moves whole tensors between pinned memory and a device, by the C loop in `native/ring.c`."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from dualblade.config.storage import PaceConfig
from dualblade.errors import StorageError
from dualblade.linux import nvme_status
from dualblade.native._compiled import ffi, lib

Op = Literal["read", "write"]

_CURES = {
    errno.ENOMEM: "raise the memlock limit (ulimit -l), or lower storage.queue_depth",
    errno.EPERM: "io_uring is switched off: see sysctl kernel.io_uring_disabled and the container's seccomp profile",
    errno.ENOSYS: "this kernel has no io_uring; Linux 5.11 or newer is needed",
    errno.ENODATA: "the target ends before the extent does: is another program truncating it?",
    errno.ETIMEDOUT: "the device gave no answer in time: see the kernel log, or raise storage.timeout_s",
    errno.ERANGE: "the command lies outside the extents this run owns; nothing was sent to the device",
    errno.ENOBUFS: "the staging holds less than one block for each command; lower storage.queue_depth",
}

# Memory that the kernel may still write to after a timeout: kept until the process ends, never used again.
_abandoned: list[object] = []


@dataclass(frozen=True)
class Mirror:
    """Memory to which a read copies its bytes [from_byte, from_byte + size_bytes) as each command completes.

    Such a read uses only the first `staging_bytes` of its buffer; all mirrored reads of a ring share them.
    """

    address: int
    from_byte: int
    size_bytes: int
    staging_bytes: int


class DeviceClock:
    """An emulated device, slower than the real one; all rings made with it share it equally (`native/clock.h`)."""

    def __init__(self, pace: PaceConfig) -> None:
        latency_ns = round(pace.latency_us * 1e3)
        native = lib.db_clock_new(1 / pace.read_gb_per_s, 1 / pace.write_gb_per_s, latency_ns)
        if native == ffi.NULL:
            raise MemoryError
        self.native = ffi.gc(native, lib.db_clock_free)


@dataclass
class OpStats:
    """Totals of one kind of operation; `depth_sum` adds up the commands in flight at each issue."""

    commands: int = 0
    depth_sum: int = 0
    bytes: int = 0

    @property
    def mean_depth(self) -> float | None:
        return self.depth_sum / self.commands if self.commands else None


@dataclass(eq=False)
class Pending:
    """A queued transfer; `buffer` owns its memory.

    `in_doubt`: it failed and the kernel still has commands of it, which may write to that memory.
    """

    op: Op
    buffer: object
    offset_bytes: int
    size_bytes: int
    native: object
    in_doubt: bool = False


class Ring:
    """An io_uring for one thread and one target; its transfers touch only bytes [first_byte, end_byte).

    With `namespace_id`, `fd` is an NVMe character device and transfers are native commands to that namespace. With
    `iopoll`, a waiting ring polls for their completion instead of sleeping.
    """

    def __init__(
        self,
        fd: int,
        target: str,
        *,
        queue_depth: int,
        first_byte: int,
        end_byte: int,
        block_bytes: int,
        namespace_id: int = 0,
        iopoll: bool = False,
        clock: DeviceClock | None = None,
    ) -> None:
        self._target = target
        self._block_bytes = block_bytes
        self._clock = clock
        self._pending: set[Pending] = set()
        self._busy = threading.Lock()
        self.in_doubt = False  # closed with commands in flight, which may still write
        self._result = ffi.new("struct db_result *")
        self.stats: dict[Op, OpStats] = {"read": OpStats(), "write": OpStats()}
        device = ffi.new("struct db_device *", [fd, namespace_id, block_bytes, first_byte, end_byte, iopoll])
        out = ffi.new("struct db_ring **")
        code = lib.db_ring_open(out, device, queue_depth, clock.native if clock else ffi.NULL)
        if code < 0:
            raise StorageError(f"cannot set up io_uring for {target}: {_explain(code)}")
        self._ring = out[0]

    def start(
        self,
        op: Op,
        buffer: object,
        address: int,
        offset_bytes: int,
        size_bytes: int,
        chunk_bytes: int,
        mirror: Mirror | None = None,
    ) -> Pending:
        """Queue a transfer of `size_bytes` between memory at `address`, owned by `buffer`, and the target.

        Nothing is submitted before the next wait. Every wait serves all transfers of the ring in order, and keeps the
        device's queue filled with commands of the next ones.
        """
        with self._busy:
            native = lib.db_start(
                self._ring,
                op == "write",
                ffi.cast("void *", address),
                offset_bytes,
                size_bytes,
                chunk_bytes,
                ffi.NULL if mirror is None else _native(mirror),
            )
            if native == ffi.NULL:
                raise MemoryError
            pending = Pending(op, buffer, offset_bytes, size_bytes, native)
            self._pending.add(pending)
            return pending

    def wait(self, pending: Pending, timeout_s: float) -> int:
        """Wait until a transfer is complete; return the bytes that the device moved.

        Raises:
            StorageError: a command failed, ended inside a block, or the ring got no answer within `timeout_s`.
        """
        with self._busy:
            result = self._result
            code = lib.db_wait(self._ring, pending.native, int(timeout_s * 1e9), result)
            self._pending.remove(pending)
            stats = self.stats[pending.op]
            stats.commands += result.commands
            stats.depth_sum += result.depth_sum
            stats.bytes += result.moved
            if result.in_flight:
                pending.in_doubt = True
                _abandoned.append((self, pending))
            if code:
                raise StorageError(
                    f"{pending.op} of {pending.size_bytes:,} bytes at byte {pending.offset_bytes:,} of {self._target} "
                    f"failed at byte {result.failed_byte:,} (LBA {result.failed_byte // self._block_bytes:,}): "
                    f"{_explain(code)}"
                )
            return int(result.moved)

    def register(self, address: int, size_bytes: int, chunk_bytes: int, stride_bytes: int | None = None) -> bool:
        """Let the kernel pin a buffer once for native commands of `chunk_bytes`; return whether it did.

        Call it before the first transfer. Transfers begin at multiples of `stride_bytes` (None: at the start). The
        kernel may refuse (memlock limit, Linux before 6.1); transfers then work without.
        """
        stride_bytes = stride_bytes or size_bytes
        base = ffi.cast("void *", address)
        return bool(lib.db_ring_register(self._ring, base, size_bytes, stride_bytes, chunk_bytes) == 0)

    @property
    def registered(self) -> bool:
        """Whether a buffer is registered and the kernel has accepted all commands on it so far."""
        return self._ring is not None and bool(lib.db_ring_registered(self._ring))

    def close(self) -> None:
        """Cancel commands in flight and close the ring; safe to call twice."""
        with self._busy:
            if self._ring is not None and lib.db_ring_close(self._ring):
                self.in_doubt = True
                _abandoned.append((self, set(self._pending)))
            self._pending.clear()
            self._ring = None

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _native(mirror: Mirror) -> object:
    target = ffi.cast("char *", mirror.address)
    return ffi.new("struct db_mirror *", [target, mirror.from_byte, mirror.size_bytes, mirror.staging_bytes])


def _explain(code: int) -> str:
    """Explain a negative errno or a positive NVMe status."""
    if code > 0:
        return nvme_status.describe(code)
    cure = _CURES.get(-code)
    return f"{os.strerror(-code)} ({errno.errorcode.get(-code, -code)})" + (f"; {cure}" if cure else "")

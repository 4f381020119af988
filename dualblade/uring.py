"""The ring of one copy thread: whole tensors between pinned memory and a device, by the C loop in `_uring.c`."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from dualblade._uring_native import ffi, lib
from dualblade.errors import StorageError

Op = Literal["read", "write"]

_CURES = {
    errno.ENOMEM: "raise the memlock limit (ulimit -l), or lower storage.queue_depth",
    errno.EPERM: "io_uring is switched off: see sysctl kernel.io_uring_disabled and the container's seccomp profile",
    errno.ENOSYS: "this kernel has no io_uring; Linux 5.11 or newer is needed",
    errno.ENODATA: "the target ends before the extent does: is another program truncating it?",
    errno.ETIMEDOUT: "the device gave no answer in time: see the kernel log, or raise storage.timeout_s",
    errno.ERANGE: "the command lies outside the extents this run owns; nothing was sent to the device",
}

# Memory that the kernel may still write to after a timeout: kept for the life of the process, never used again.
_abandoned: list[object] = []


@dataclass(frozen=True)
class Mirror:
    """Memory that gets bytes `from_byte` to `from_byte + size_bytes` of a read, each as its command completes.

    `staging_bytes` of the buffer, whole blocks, are all that such a read uses of it.
    """

    address: int
    from_byte: int
    size_bytes: int
    staging_bytes: int


@dataclass
class DepthStats:
    """Commands issued and the sum, over them, of the commands in flight at issue."""

    commands: int = 0
    depth_sum: int = 0

    @property
    def mean(self) -> float | None:
        return self.depth_sum / self.commands if self.commands else None


class Ring:
    """An io_uring for one thread and one target; transfers may only touch bytes [first_byte, end_byte) of it."""

    def __init__(
        self, fd: int, target: str, *, queue_depth: int, first_byte: int, end_byte: int, block_bytes: int
    ) -> None:
        self._target = target
        self.depth: dict[Op, DepthStats] = {"read": DepthStats(), "write": DepthStats()}
        self._result = ffi.new("struct db_result *")
        self._busy = threading.Lock()
        out = ffi.new("struct db_ring **")
        code = lib.db_ring_open(out, fd, queue_depth, first_byte, end_byte, block_bytes)
        if code < 0:
            raise StorageError(f"cannot set up io_uring for {target}: {_explain(-code)}")
        self._ring = out[0]

    def transfer(
        self,
        op: Op,
        buffer: object,
        address: int,
        offset_bytes: int,
        size_bytes: int,
        chunk_bytes: int,
        timeout_s: float,
        mirror: Mirror | None = None,
    ) -> None:
        """Move `size_bytes` between memory at `address` and the target; `buffer` is the owner of that memory.

        Raises:
            StorageError: a command failed, came back short inside a block, or gave no answer within `timeout_s`.
        """
        with self._busy:
            code = lib.db_transfer(
                self._ring,
                op == "write",
                ffi.cast("void *", address),
                offset_bytes,
                size_bytes,
                chunk_bytes,
                int(timeout_s * 1e9),
                _native(mirror),
                self._result,
            )
            self.depth[op].commands += self._result.commands
            self.depth[op].depth_sum += self._result.depth_sum
        if self._result.in_flight:
            _abandoned.append((self, buffer))
        if code < 0:
            raise StorageError(
                f"{op} of {size_bytes:,} bytes at byte {offset_bytes:,} of {self._target} failed at byte "
                f"{self._result.failed_byte:,}: {_explain(-code)}"
            )

    def close(self) -> None:
        """Give the ring back to the kernel, unless commands are still in flight on it."""
        if self._ring is not None and not self._result.in_flight:
            lib.db_ring_close(self._ring)
        self._ring = None

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def dio_alignment_bytes(fd: int) -> int | None:
    """Offset alignment of direct I/O on `fd`, 0 where the file system has none, None where the kernel cannot tell."""
    memory_bytes, offset_bytes = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    code = lib.db_dio_alignment(fd, memory_bytes, offset_bytes)
    if code == -errno.EOPNOTSUPP:
        return 0
    return int(offset_bytes[0]) if code == 0 else None


def _native(mirror: Mirror | None) -> object:
    if mirror is None:
        return ffi.NULL
    target = ffi.cast("char *", mirror.address)
    return ffi.new("struct db_mirror *", [target, mirror.from_byte, mirror.size_bytes, mirror.staging_bytes])


def _explain(code: int) -> str:
    cure = _CURES.get(code)
    return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})" + (f"; {cure}" if cure else "")

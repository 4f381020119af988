"""A guard for memory mapped from a file: a failing disk or a truncated file does not kill the process."""

from __future__ import annotations

from types import TracebackType

from dualblade.native._compiled import ffi, lib


class FaultGuard:
    """While its block runs, a fault in a mapping of `size_bytes` at `address` gives zeros instead of SIGBUS.

    `address` is the start of a page. The zeros reach from the page without data to the end of the mapping.
    """

    def __init__(self, address: int, size_bytes: int) -> None:
        self._native = ffi.new("struct db_guard *", [address, size_bytes])

    @property
    def failed_byte(self) -> int | None:
        """The first byte of the range that faulted; None if all bytes came from the file."""
        failed_byte: int = self._native.failed_byte
        return None if failed_byte < 0 else failed_byte

    def __enter__(self) -> FaultGuard:
        lib.db_guard(self._native)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lib.db_unguard(self._native)

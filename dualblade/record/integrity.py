"""Checks before and after a read: its rows were written completely and, on request, come back unchanged."""

from __future__ import annotations

import zlib

import numpy as np
import torch

from dualblade.errors import IntegrityError
from dualblade.geometry import KVGeometry, TensorId


class ReadableRows:
    """The number of completely written rows of each tensor; a read beyond them raises."""

    def __init__(self, geometry: KVGeometry) -> None:
        self._rows = dict.fromkeys(geometry.tensors, 0)

    def written(self, tensor: TensorId, rows: range) -> None:
        """Make rows readable, unless a failed write left a gap before them."""
        if rows.start <= self._rows[tensor]:
            self._rows[tensor] = max(self._rows[tensor], rows.stop)

    def crop(self, tensor: TensorId, n_rows: int) -> None:
        self._rows[tensor] = min(self._rows[tensor], n_rows)

    def check(self, tensor: TensorId, rows: range) -> None:
        if rows.stop > self._rows[tensor]:
            raise IntegrityError(
                f"{tensor}: rows {rows.start}..{rows.stop - 1} were asked for, but only {self._rows[tensor]} rows were "
                "written completely: an earlier write failed; crop to what is there, or to 0, or make the cache anew"
            )


class Checksums:
    """A CRC-32 for each row of each tensor, taken before the write and compared after the read."""

    def __init__(self, geometry: KVGeometry) -> None:
        self._crc = {tensor: np.zeros(geometry.capacity_tokens, dtype=np.uint32) for tensor in geometry.tensors}

    def record(self, tensor: TensorId, rows: range, data: torch.Tensor) -> None:
        """Keep the checksums of rows that are about to be written; `data` holds their bytes."""
        self._crc[tensor][rows.start : rows.stop] = self._of_rows(rows, data)

    def verify(self, tensor: TensorId, rows: range, data: torch.Tensor) -> None:
        """Compare rows that were just read.

        Raises:
            IntegrityError: a row differs.
        """
        differs = self._of_rows(rows, data) != self._crc[tensor][rows.start : rows.stop]
        if differs.any():
            raise IntegrityError(
                f"{tensor}: row {rows.start + int(differs.argmax())} read back differs from what was written "
                f"({int(differs.sum())} of {len(rows)} rows); do not trust this storage"
            )

    @staticmethod
    def _of_rows(rows: range, data: torch.Tensor) -> np.ndarray:
        lines = data.numpy().reshape(len(rows), -1)
        return np.fromiter((zlib.crc32(line.data) for line in lines), dtype=np.uint32, count=len(rows))

"""Reads of rows that were not written completely, or that changed on storage, fail."""

from __future__ import annotations

import pytest
import torch

from dualblade.errors import IntegrityError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.record.ledger import Checksums, ReadableRows

GEOMETRY = KVGeometry.uniform(1, 2, 8, batch_size=3, capacity_tokens=10)
TENSOR = TensorId(0, "k")


def test_rows_behind_a_failed_write_stay_unreadable() -> None:
    readable = ReadableRows(GEOMETRY)
    readable.written(TENSOR, range(4))
    readable.written(TENSOR, range(5, 6))  # row 4 failed
    readable.check(TENSOR, range(4))
    with pytest.raises(IntegrityError, match="only 4 rows"):
        readable.check(TENSOR, range(6))


def test_cropped_rows_are_readable_again_only_after_they_were_written_again() -> None:
    readable = ReadableRows(GEOMETRY)
    readable.written(TENSOR, range(8))
    readable.crop(TENSOR, 3)
    with pytest.raises(IntegrityError):
        readable.check(TENSOR, range(4))
    readable.written(TENSOR, range(3, 4))
    readable.check(TENSOR, range(4))


def test_one_flipped_bit_is_found_and_its_row_named() -> None:
    checksums = Checksums(GEOMETRY)
    data = torch.randint(0, 256, (10 * GEOMETRY.tensors[TENSOR].row_bytes,), dtype=torch.uint8)
    checksums.record(TENSOR, range(10), data)
    checksums.verify(TENSOR, range(10), data)
    data[7 * GEOMETRY.tensors[TENSOR].row_bytes + 5] ^= 1
    checksums.verify(
        TENSOR, range(2, 7), data[2 * GEOMETRY.tensors[TENSOR].row_bytes : 7 * GEOMETRY.tensors[TENSOR].row_bytes]
    )
    with pytest.raises(IntegrityError, match=r"row 7 .*1 of 10 rows"):
        checksums.verify(TENSOR, range(10), data)

"""Blocks that a killed run left are found again, and only within the blocks claimed now."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.errors import StorageError
from dualblade.targets.leftovers import Leftover, LeftoverRecord, exist, records, remove_partial_records

DEVICE, OTHER = "eui.0025385b71b00c31", "eui.0025385b71b00c32"


def test_a_record_is_there_until_it_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert not exist(folder)
    assert list(records(folder, DEVICE)) == []
    left = [Leftover(DEVICE, 100, 200), Leftover(DEVICE, 300, 301)]
    for leftover in (*left, Leftover(OTHER, 100, 200)):
        LeftoverRecord.write(folder, leftover)
    found = sorted(records(folder, DEVICE), key=lambda record: record.leftover.first_lba)
    assert [record.leftover for record in found] == left
    for record in found:
        record.remove()
        record.remove()
    assert list(records(folder, DEVICE)) == []
    assert exist(folder), "the other device's"


def test_a_partial_record_is_removed_when_its_writer_is_dead(tmp_path: Path) -> None:
    """A record is complete on disk before the first block is written; a living run may be writing one now."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    halves = [tmp_path / f".raw-writes-1234.{pid}.partial" for pid in (dead.pid, os.getpid())]
    for half in halves:
        half.write_text('{"wwid": "eui.0')
    remove_partial_records(tmp_path)
    assert [half.exists() for half in halves] == [False, True]
    assert not exist(tmp_path)
    assert list(records(tmp_path, DEVICE)) == []


@pytest.mark.parametrize("content", ["", "[]", '{"blocks": 1}'])
def test_other_content_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / ".raw-writes-1.json").write_text(content)
    assert list(records(tmp_path, DEVICE)) == []
    assert exist(tmp_path)


def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write in .*file.*storage\.records"):
        LeftoverRecord.write(tmp_path / "file", Leftover(DEVICE, 0, 1))


@given(*(st.integers(0, 50) for _ in range(4)))
def test_only_blocks_of_both_are_deallocated(first: int, n_left: int, start: int, n_owned: int) -> None:
    owned = range(start, start + n_owned)
    both = Leftover(DEVICE, first, first + n_left).within(owned)
    assert set(both) == set(range(first, first + n_left)) & set(owned)

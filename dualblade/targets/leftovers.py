"""Blocks that a killed run left written: a small record beside the results names them, the next run gives them back.

The record is on disk before the first write and goes after the blocks were deallocated. What it names is deallocated
only within the range that the next run has claimed itself: elsewhere somebody may have put something since.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dualblade.errors import StorageError

_PATTERN = ".raw-writes-*.json"
_HALVES = ".raw-writes-*.partial"


@dataclass(frozen=True)
class Leftover:
    """Blocks [first_lba, end_lba) of the namespace `wwid`, counted from its start."""

    wwid: str
    first_lba: int
    end_lba: int

    @property
    def blocks(self) -> range:
        return range(self.first_lba, self.end_lba)

    def within(self, owned: range) -> range:
        """Those of its blocks that are ours to deallocate."""
        return range(max(self.first_lba, owned.start), max(min(self.end_lba, owned.stop), owned.start))


class Record:
    """A leftover on disk, for as long as its blocks are written."""

    def __init__(self, path: Path, leftover: Leftover) -> None:
        self._path = path
        self.leftover = leftover

    @classmethod
    def write(cls, folder: Path, leftover: Leftover) -> Record:
        """Make it last before anything is written to the blocks.

        Raises:
            StorageError: the folder takes no file.
        """
        record = cls(folder / f".raw-writes-{uuid.uuid4().hex}.json", leftover)
        partial = record._path.with_suffix(f".{os.getpid()}.partial")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(partial, "x") as file:
                json.dump(asdict(leftover), file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(record._path)
            _make_name_last(folder)
        except OSError as error:
            raise StorageError(
                f"cannot write in {folder} what a killed run would leave on the device: {error.strerror}; choose "
                "another folder by storage.records"
            ) from None
        return record

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def exist(folder: Path) -> bool:
    """Whether a killed run left a record there."""
    return any(folder.glob(_PATTERN))


def remove_halves(folder: Path) -> None:
    """Remove what runs left that were killed while they wrote their record: they had not written anything else yet."""
    for path in folder.glob(_HALVES):
        pid = path.name.split(".")[-2]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)


def records(folder: Path, wwid: str) -> Iterator[Record]:
    """Those about the namespace `wwid`."""
    for path in sorted(folder.glob(_PATTERN)):
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            record = Record(path, Leftover(**json.loads(path.read_text())))
            if record.leftover.wwid == wwid:
                yield record


def _make_name_last(folder: Path) -> None:
    """A file's name is its folder's data (fsync(2), notes)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

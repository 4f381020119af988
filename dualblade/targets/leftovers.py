"""Blocks that a killed run left written: a small record beside the results names them for the next run.

The record is on disk before the first write, and removed after the blocks were deallocated. The next run deallocates
only blocks that it has claimed itself: the others may hold somebody's data by now.
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
from dualblade.linux.files import write_durable

_PATTERN = ".raw-writes-*.json"
_PARTIAL = ".raw-writes-*.partial"


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
        """Return the blocks that lie in `owned`, which may be deallocated."""
        return range(max(self.first_lba, owned.start), max(min(self.end_lba, owned.stop), owned.start))


class LeftoverRecord:
    """A leftover on disk; it exists as long as its blocks are written."""

    def __init__(self, path: Path, leftover: Leftover) -> None:
        self._path = path
        self.leftover = leftover

    @classmethod
    def write(cls, folder: Path, leftover: Leftover) -> LeftoverRecord:
        """Write the record durably, before anything is written to the blocks.

        Raises:
            StorageError: no file can be written in the folder.
        """
        record = cls(folder / f".raw-writes-{uuid.uuid4().hex}.json", leftover)
        partial = record._path.with_suffix(f".{os.getpid()}.partial")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_durable(json.dumps(asdict(leftover)), record._path, partial)
        except OSError as error:
            raise StorageError(
                f"cannot write in {folder} the record of blocks in use on the device: {error.strerror}; choose "
                "another folder by storage.records"
            ) from None
        return record

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def exist(folder: Path) -> bool:
    """Whether the folder has a record of a killed run."""
    return any(folder.glob(_PATTERN))


def remove_partial_records(folder: Path) -> None:
    """Remove unfinished records of killed runs, which had not written any blocks yet."""
    for path in folder.glob(_PARTIAL):
        pid = path.name.split(".")[-2]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)


def records(folder: Path, wwid: str) -> Iterator[LeftoverRecord]:
    """Read the records about the namespace `wwid`."""
    for path in sorted(folder.glob(_PATTERN)):
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            record = LeftoverRecord(path, Leftover(**json.loads(path.read_text())))
            if record.leftover.wwid == wwid:
                yield record

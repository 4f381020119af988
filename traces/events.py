"""Events of a trace as arrays: a command was issued, was taken back by its driver, or completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.schema import OPERATIONS

Int = npt.NDArray[np.int64]

ISSUE, COMPLETE, REQUEUE = 0, 1, 2
READ, WRITE, DEALLOCATE, FLUSH, OTHER = range(len(OPERATIONS))
SECTOR_BYTES = 512  # of the block layer, whatever the device's own blocks are


@dataclass(frozen=True)
class Events:
    """One element per event in each array; what a completion does not tell (its bytes, say) comes from its issue.

    `device` indexes a list of names that the source keeps; `key` is equal for the events of one command while it is in
    flight. `depth` is for issues, and unknown (-1) until they are paired.
    """

    kind: npt.NDArray[np.int8]
    op: npt.NDArray[np.int8]
    device: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    cid: npt.NDArray[np.int32]
    status: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    ns: Int
    offset_bytes: Int
    bytes: Int
    key: Int

    def __len__(self) -> int:
        return len(self.ns)

    def take(self, chosen: npt.NDArray[np.bool_] | Int) -> Events:
        """Some of the events, by mask or by index."""
        return Events(**{field.name: getattr(self, field.name)[chosen] for field in dataclasses.fields(self)})

    def by_time(self) -> Events:
        """In order of time; events of one moment stay as they were."""
        return self if np.all(self.ns[1:] >= self.ns[:-1]) else self.take(np.argsort(self.ns, kind="stable"))


_BYTE, _INT, _LONG = np.zeros(0, np.int8), np.zeros(0, np.int32), np.zeros(0, np.int64)
NONE = Events(_BYTE, _BYTE, _INT, _INT, _INT, _INT, _INT, _LONG, _LONG, _LONG, _LONG)


def make_events(n_events: int, **columns: npt.NDArray[np.generic] | int) -> Events:
    """Events from some columns, each an array or one value for all; the others are -1."""
    made: dict[str, Any] = {}
    for name, empty in vars(NONE).items():
        value = columns.get(name, -1)
        made[name] = np.full(n_events, value, empty.dtype) if isinstance(value, int) else value.astype(empty.dtype)
    return Events(**made)


def concatenate(parts: Sequence[Events]) -> Events:
    """All parts, one after the other."""
    names = [field.name for field in dataclasses.fields(Events)]
    return Events(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

"""Events of a trace as arrays: a command was issued, was taken back by its driver, or completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

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


def make_events(n_events: int, **columns: npt.NDArray[np.generic] | int) -> Events:
    """Events from some columns, each an array or one value for all; the others are -1."""
    made = {}
    for field in dataclasses.fields(Events):
        kind = {"kind": np.int8, "op": np.int8}.get(field.name) or (
            np.int32 if field.name in ("device", "queue", "cid", "status", "depth") else np.int64
        )
        value = columns.get(field.name, -1)
        made[field.name] = np.full(n_events, value, kind) if isinstance(value, int) else value.astype(kind)
    return Events(**made)


def concatenate(parts: Sequence[Events]) -> Events:
    """All parts, one after the other."""
    names = [field.name for field in dataclasses.fields(Events)]
    return Events(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


NONE = make_events(0)

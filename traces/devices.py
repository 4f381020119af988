"""The devices of a trace: their names, blocks and queues, as the machine that was traced knew them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MINOR_BITS = 20  # of the kernel's dev_t, include/linux/kdev_t.h
DEFAULT_LBA_BYTES = 512


def describe(sys_root: Path = Path("/sys")) -> dict[str, dict[str, Any]]:
    """All disks there are now, by name: the kernel's dev_t, bytes of a block, and the hardware queue of each CPU."""
    found = {}
    for folder in sorted((sys_root / "block").iterdir()):
        major, minor = map(int, (folder / "dev").read_text().split(":"))
        found[folder.name] = {
            "dev": major << MINOR_BITS | minor,
            "lba_bytes": int((folder / "queue/logical_block_size").read_text()),
            "queue_of_cpu": _queues(folder / "mq"),
        }
    return found


def _queues(folder: Path) -> dict[str, int]:
    """Hardware queue by CPU; empty where the driver has none."""
    queues = {}
    for queue in folder.glob("[0-9]*"):
        for cpu in (queue / "cpu_list").read_text().replace(",", " ").split():
            queues[cpu] = int(queue.name)
    return queues


class Devices:
    """Indices for the devices of a trace in the order in which they appear."""

    def __init__(self, described: Mapping[str, Mapping[str, Any]]) -> None:
        self._described = described
        self._by_number = {int(device["dev"]): name for name, device in described.items()}
        self.names: list[str] = []

    def indices(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Of devices by their dev_t; one that was not there when the trace began is named by major:minor."""
        distinct, places = np.unique(numbers, return_inverse=True)
        return self._named([self._name(int(number)) for number in distinct], places)

    def named(self, names: pa.DictionaryArray) -> npt.NDArray[np.int32]:
        """Of devices by their names."""
        return self._named(names.dictionary.to_pylist() if len(names) else [], names.indices.to_numpy())

    def only(self, name: str, n: int) -> npt.NDArray[np.int32]:
        """Of the one device of all `n` events."""
        return np.full(n, self._index(name), np.int32)

    def queues(self, device: npt.NDArray[np.int32], cpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The hardware queue that serves a CPU; -1 unknown."""
        queues = np.full(len(cpu), -1, np.int32)
        for index, name in enumerate(self.names):
            for number, queue in self._of(name).get("queue_of_cpu", {}).items():
                queues[(device == index) & (cpu == int(number))] = queue
        return queues

    def lba_bytes(self, device: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Bytes of one logical block of each device."""
        sizes = [self._of(name).get("lba_bytes", DEFAULT_LBA_BYTES) for name in self.names]
        return np.array(sizes or [0], np.int64)[device]

    def _named(self, names: list[str], places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
        indices = np.array([self._index(name) for name in names], np.int32)
        return np.take(indices, places)

    def _index(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _name(self, number: int) -> str:
        return self._by_number.get(number) or f"{number >> MINOR_BITS}:{number & ((1 << MINOR_BITS) - 1)}"

    def _of(self, name: str) -> Mapping[str, Any]:
        return self._described.get(name, {})

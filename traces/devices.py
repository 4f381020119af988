"""The devices of a trace: names, block sizes and queues, as the traced machine reported them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MINOR_BITS = 20  # of the kernel's dev_t, include/linux/kdev_t.h
DEFAULT_LBA_BYTES = 512


def read_devices(sys_root: Path = Path("/sys")) -> dict[str, dict[str, Any]]:
    """Return all disks of this machine by name: dev_t, bytes of a logical block, hardware queue of each CPU."""
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
    """Return the hardware queue by CPU; empty where the driver has none."""
    queues = {}
    for queue in folder.glob("[0-9]*"):
        for cpu in (queue / "cpu_list").read_text().replace(",", " ").split():
            queues[cpu] = int(queue.name)
    return queues


class Devices:
    """Numbers the devices of a trace, in the order in which they appear."""

    def __init__(self, described: Mapping[str, Mapping[str, Any]]) -> None:
        self._described = described
        self._name_of_dev = {int(device["dev"]): name for name, device in described.items()}
        self.names: list[str] = []

    def index(self, name: str) -> int:
        """Return the index of a device, which is a new one if the name is new."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def by_dev(self, devs: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the indices of devices by their dev_t. An unknown device is named major:minor."""
        distinct, places = np.unique(devs, return_inverse=True)
        return self._indices([self._name(int(dev)) for dev in distinct], places)

    def by_name(self, names: pa.DictionaryArray) -> npt.NDArray[np.int32]:
        """Return the indices of devices by their names."""
        return self._indices(names.dictionary.to_pylist() if len(names) else [], names.indices.to_numpy())

    def queues(self, device: npt.NDArray[np.int32], cpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the hardware queue that serves each CPU; -1 unknown."""
        queues = np.full(len(cpu), -1, np.int32)
        for index, name in enumerate(self.names):
            for number, queue in self._facts(name).get("queue_of_cpu", {}).items():
                queues[(device == index) & (cpu == int(number))] = queue
        return queues

    def lba_bytes(self, device: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the bytes of one logical block of each device."""
        sizes = [self._facts(name).get("lba_bytes", DEFAULT_LBA_BYTES) for name in self.names]
        return np.array(sizes or [0], np.int64)[device]

    def _indices(self, names: list[str], places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
        return np.take(np.array([self.index(name) for name in names], np.int32), places)

    def _name(self, dev: int) -> str:
        return self._name_of_dev.get(dev) or f"{dev >> MINOR_BITS}:{dev & ((1 << MINOR_BITS) - 1)}"

    def _facts(self, name: str) -> Mapping[str, Any]:
        return self._described.get(name, {})

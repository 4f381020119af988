"""Attribute device commands to tensors by their address, and to phases and iterations by the time of operations.

Sources: extents.json (the tensors' bytes on the device) and kv_io.parquet (the engine's operations) of the same run.
A command belongs to the tensor that holds its first byte. Its cause is

- for a read, and for a write by the direct path: the tensor's latest operation in the same direction that had begun
  when the command was issued; operations on one tensor follow each other;
- for a write through the page cache: the operation that wrote the row of the first byte, since the kernel writes dirty
  pages back long after;
- for a command by the direct path after the end of the last operation: none. With such reads the engine checks that its
  blocks are deallocated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.run.run_files import RunFile
from traces.commands import READ, WRITE, Array, Int
from traces.errors import TraceError

FILES = (RunFile.EXTENTS, RunFile.KV_IO)
EXTENTS_SCHEMA = 1
PHASES = ("", "prefill", "decode")
_SHIFT = 52  # of the tensor's number above a time or a row: 52 bits of ns are 52 days


@dataclass(frozen=True)
class Tensors:
    """The tensors of a run by number, and their pieces by device, sorted by their place on the device."""

    layer: Int
    kind: list[str]
    path: list[str]
    pieces: dict[str, npt.NDArray[np.int64]]  # [pieces, 4]: device byte, bytes, tensor number, tensor byte

    @classmethod
    def load(cls, path: Path) -> Tensors:
        """Read extents.json.

        Raises:
            TraceError: it is missing, damaged or of another version.
        """
        try:
            content = json.loads(path.read_text())
            if content["schema"] != EXTENTS_SCHEMA:
                raise TraceError(f"{path} has schema {content['schema']} and this program reads {EXTENTS_SCHEMA}")
            return cls._of(content["tensors"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TraceError(f"{path} cannot be used ({error}); run the point again") from None

    @classmethod
    def _of(cls, tensors: list[dict[str, Any]]) -> Tensors:
        by_device: dict[str, list[tuple[int, int, int, int]]] = {}
        for number, tensor in enumerate(tensors):
            for tensor_byte, device_byte, size in tensor["pieces"]:
                by_device.setdefault(tensor["device"], []).append((device_byte, size, number, tensor_byte))
        return cls(
            np.array([tensor["layer"] for tensor in tensors], np.int64),
            [tensor["kind"] for tensor in tensors],
            [tensor["path"] for tensor in tensors],
            {device: np.array(sorted(pieces), np.int64) for device, pieces in by_device.items()},
        )

    def locate(self, device: str, offset_bytes: Int) -> tuple[Int, Int]:
        """Return the number of the tensor that holds each byte of a device, and the byte within the tensor; -1 none."""
        pieces = self.pieces.get(device)
        if pieces is None:
            nowhere = np.full(len(offset_bytes), -1, np.int64)
            return nowhere, nowhere
        place = np.searchsorted(pieces[:, 0], offset_bytes, side="right") - 1
        begin, size, number, tensor_byte = pieces[place].T
        inside = (place >= 0) & (offset_bytes < begin + size)
        return np.where(inside, number, -1), np.where(inside, tensor_byte + offset_bytes - begin, -1)


@dataclass(frozen=True)
class Operations:
    """The engine's operations of one direction, sorted by tensor and then by `order`: their begin, or first row."""

    key: Int
    tensor: Int
    phase: Int
    iteration: Int

    @classmethod
    def of(cls, log: dict[str, npt.NDArray[Any]], chosen: npt.NDArray[np.bool_], order: str) -> Operations:
        """Return the chosen operations of the log."""
        key = (log["tensor"][chosen] << _SHIFT) | log[order][chosen]
        sorting = np.argsort(key, kind="stable")
        return cls(key[sorting], *(log[name][chosen][sorting] for name in ("tensor", "phase", "iteration")))

    def latest(self, tensor: Int, value: Int) -> tuple[Int, Int]:
        """Return phase and iteration of the tensor's last operation with an order of at most `value`; 0, -1 if none."""
        if not len(self.key):
            return np.zeros(len(tensor), np.int64), np.full(len(tensor), -1, np.int64)
        place = np.searchsorted(self.key, (tensor << _SHIFT) | value, side="right") - 1
        found = (place >= 0) & (tensor >= 0) & (self.tensor[place] == tensor)
        return np.where(found, self.phase[place], 0), np.where(found, self.iteration[place], -1)


class RunAttribution:
    """Attribution of the commands of the run whose folder holds FILES."""

    def __init__(self, folder: Path) -> None:
        """Raises:
        TraceError: one of them is missing or damaged.
        """
        self._tensors = tensors = Tensors.load(folder / RunFile.EXTENTS)
        log = _read_log(folder / RunFile.KV_IO, tensors)
        reads, cached = log["op"] == READ, log["cached"]
        self._row_bytes = log["row_bytes"]
        self._ended_ns = int(log["storage_end_ns"].max(initial=0))
        self._cached = np.array([path != "direct" for path in tensors.path] + [False])
        self._reads = Operations.of(log, reads, "storage_start_ns")
        self._direct_writes = Operations.of(log, ~reads & ~cached, "storage_start_ns")
        self._cached_writes = Operations.of(log, ~reads & cached, "first_row")

    def columns(self, commands: Array, device_names: list[str]) -> dict[str, pa.Array]:
        """Return the schema's columns from `layer` on."""
        tensors, device, offset_bytes = self._tensors, commands["device"], commands["offset_bytes"]
        tensor, tensor_byte = (np.full(len(commands), -1, np.int64) for _ in range(2))
        for index, name in enumerate(device_names):
            here = (device == index) & (offset_bytes >= 0)
            tensor[here], tensor_byte[here] = tensors.locate(name, offset_bytes[here])
        phase, iteration = self._cause(tensor, tensor_byte, commands["op"], commands["issue_ns"])
        kinds, paths = ["", *dict.fromkeys(tensors.kind)], ["", *dict.fromkeys(tensors.path)]
        return {
            "layer": pa.array(np.append(tensors.layer, -1)[tensor]),
            "kind": text_column(_codes(tensors.kind, kinds)[tensor], kinds),
            "path": text_column(_codes(tensors.path, paths)[tensor], paths),
            "tensor_offset_bytes": pa.array(tensor_byte),
            "phase": text_column(phase, list(PHASES)),
            "iteration": pa.array(iteration),
        }

    def _cause(self, tensor: Int, tensor_byte: Int, op: npt.NDArray[np.int8], ns: Int) -> tuple[Int, Int]:
        phase, iteration = np.zeros(len(tensor), np.int64), np.full(len(tensor), -1, np.int64)
        row = tensor_byte // np.append(self._row_bytes, 1)[tensor]
        cached = self._cached[tensor]
        asked = cached | (ns <= self._ended_ns)
        for operations, chosen, value in (
            (self._reads, (op == READ) & asked, ns),
            (self._direct_writes, (op == WRITE) & ~cached & asked, ns),
            (self._cached_writes, (op == WRITE) & cached, row),
        ):
            phase[chosen], iteration[chosen] = operations.latest(tensor[chosen], value[chosen])
        return phase, iteration


def _read_log(path: Path, tensors: Tensors) -> dict[str, npt.NDArray[Any]]:
    """Return the needed columns of kv_io.parquet as numbers; `row_bytes` has one value per tensor."""
    numbers = ["iteration", "first_row", "rows", "bytes", "storage_start_ns", "storage_end_ns"]
    wanted = [*numbers, "phase", "layer", "kind", "op", "path"]
    try:
        table = pq.read_table(path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise TraceError(f"{path} cannot be used ({str(error).splitlines()[0]}); run the point again") from None
    number = {(layer, kind): n for n, (layer, kind) in enumerate(zip(tensors.layer, tensors.kind, strict=True))}
    keys = zip(table["layer"].to_pylist(), table["kind"].to_pylist(), strict=True)
    log = {name: table[name].to_numpy() for name in numbers}
    log["tensor"] = np.array([number.get(key, -1) for key in keys], np.int64)
    log["phase"] = np.array([PHASES.index(phase) for phase in table["phase"].to_pylist()], np.int64)
    log["op"] = np.array([READ if op == "read" else WRITE for op in table["op"].to_pylist()], np.int64)
    log["cached"] = np.array([path != "direct" for path in table["path"].to_pylist()], bool)
    row_bytes = np.ones(len(tensors.kind), np.int64)
    row_bytes[log["tensor"]] = log["bytes"] // np.maximum(log["rows"], 1)
    return log | {"row_bytes": row_bytes}


def _codes(values: list[str], known: list[str]) -> Int:
    """Return the index of each value, and one more at the end, so that -1 finds the empty text."""
    return np.array([known.index(value) for value in values] + [0], np.int64)


def text_column(codes: npt.NDArray[Any], values: list[str]) -> pa.DictionaryArray:
    """Return a text column of the schema: indices into a few values."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))

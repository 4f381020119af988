"""Reads the text of io_layers.bt and io_layers_nvme.bt: block-layer requests, with their times at other layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dualblade.linux.files import replacing
from dualblade.run.run_files import RunFile
from traces.commands import SECTOR_BYTES, Array
from traces.devices import Devices
from traces.formats import block_requests
from traces.text import LineCounts, LineFormat, blocks

FILE_NAME = RunFile.IO_LAYERS
STAMPS = ("enter_ns", "fs_ns", "queue_ns")
NVME_STAMPS = (*STAMPS, "setup_ns")


def _lines(stamps: Sequence[str]) -> LineFormat:
    columns = {**block_requests.COLUMNS, **dict.fromkeys(stamps, pa.int64())}
    return LineFormat(columns, block_requests.PATTERN + rb"(,\d{1,18}){%d}" % len(stamps))


_LINES, _NVME_LINES = _lines(STAMPS), _lines(NVME_STAMPS)


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines of io_layers.bt."""
    return block_requests.commands(_LINES.parse(block, counts), devices, counts)


def parse_nvme(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines of io_layers_nvme.bt."""
    return block_requests.commands(_NVME_LINES.parse(block, counts), devices, counts)


def write(raw: Path, out: Path, *, nvme: bool = False) -> None:
    """Write the times at the layers, complete or not at all: columns offset_bytes, issue_ns, enter_ns, fs_ns, queue_ns.

    `nvme` reads a trace of io_layers_nvme.bt, which has setup_ns too. Offset and issue find a request in
    device_io.parquet. 0 means not seen. Lines that cannot be read are counted in device_io.parquet only.
    """
    lines, stamps = (_NVME_LINES, NVME_STAMPS) if nvme else (_LINES, STAMPS)
    schema = pa.schema([pa.field(name, pa.int64()) for name in ("offset_bytes", "issue_ns", *stamps)])
    with (
        replacing(out) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd", compression_level=1) as writer,
    ):
        for block in blocks(raw):
            table = lines.parse(block, LineCounts())
            offset_bytes = pc.multiply(table["sector"], SECTOR_BYTES)
            columns = [offset_bytes, table["issue_ns"], *(table[name] for name in stamps)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))

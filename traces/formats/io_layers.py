"""Reads what io_layers.bt and io_layers_nvme.bt print: requests of the block layer, and when they passed the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dualblade.linux.files import replacing
from dualblade.run.run_files import RunFile
from traces.devices import Devices
from traces.events import SECTOR_BYTES, Events
from traces.formats import block_requests
from traces.text import Account, LineFormat, blocks

FILE_NAME = RunFile.IO_LAYERS
STAMPS = ("enter_ns", "fs_ns", "queue_ns")
NVME_STAMPS = (*STAMPS, "setup_ns")


def _lines(stamps: Sequence[str]) -> LineFormat:
    columns = {**block_requests.COLUMNS, **dict.fromkeys(stamps, pa.int64())}
    return LineFormat(columns, block_requests.PATTERN + rb"(,\d{1,18}){%d}" % len(stamps))


_LINES, _NVME_LINES = _lines(STAMPS), _lines(NVME_STAMPS)


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines: what block_requests.bt would have seen."""
    return block_requests.events(_LINES.parse(block, account), devices, account)


def parse_nvme(block: bytes, devices: Devices, account: Account) -> Events:
    """The same of io_layers_nvme.bt."""
    return block_requests.events(_NVME_LINES.parse(block, account), devices, account)


def write(raw: Path, out: Path, *, nvme: bool = False) -> None:
    """Write the times at the layers, complete or not at all: columns offset_bytes, issue_ns, enter_ns, fs_ns, queue_ns.

    With `nvme`, of a trace by io_layers_nvme.bt, also setup_ns. A request is found again in
    device_io.parquet by its offset and its time of issue. 0 is not seen. Lines that cannot be read are accounted for
    there.
    """
    lines, stamps = (_NVME_LINES, NVME_STAMPS) if nvme else (_LINES, STAMPS)
    schema = pa.schema([pa.field(name, pa.int64()) for name in ("offset_bytes", "issue_ns", *stamps)])
    with (
        replacing(out) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd", compression_level=1) as writer,
    ):
        for block in blocks(raw):
            table = lines.parse(block, Account())
            offset_bytes = pc.multiply(table["sector"], SECTOR_BYTES)
            columns = [offset_bytes, table["issue_ns"], *(table[name] for name in stamps)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))

"""Reads the text of page_cache.bt: activity of the page cache in each tenth of a second, as page_cache.parquet."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.linux.files import replacing
from dualblade.run.run_files import RunFile
from traces.decode import MONOTONIC, read_header
from traces.schema import TraceInfo
from traces.text import LineCounts, blocks

FILE_NAME = RunFile.PAGE_CACHE
COUNTS = ("added", "deleted", "written", "reclaims", "reclaim_ns", "reclaim_throttles", "writer_throttles")
SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("end_ns", *COUNTS)])

_TIME = re.compile(rb"T,(\d{1,18})")
_COUNT = re.compile(rb"@(" + "|".join(COUNTS).encode() + rb"): (\d{1,18})")


def write(raw: Path, out: Path) -> TraceInfo:
    """Write one row for each interval, with the ns of its end. Added and deleted are folios, written are pages.

    Raises:
        TraceError: the text cannot be read, or is of no known format.
    """
    source, _ = read_header(raw)
    counts = LineCounts()
    rows = _read(raw, counts)
    with replacing(out) as partial:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), partial)
    valid = bool(rows) and not counts.broken_lines
    return TraceInfo(
        source=source,
        clock=MONOTONIC,
        valid=valid,
        reason=None if valid else f"{len(rows)} intervals, and {counts.broken_lines:,} lines could not be read",
        printed_events=len(rows),
        broken_lines=counts.broken_lines,
    )


def _read(raw: Path, counts: LineCounts) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = []
    for line in (line for block in blocks(raw) for line in block.splitlines()):
        if match := _TIME.fullmatch(line):
            rows.append(dict.fromkeys(SCHEMA.names, 0) | {"end_ns": int(match[1])})
        elif (match := _COUNT.fullmatch(line)) and rows:
            rows[-1][match[1].decode()] = int(match[2])
        else:
            counts.add_other(line)
    return rows

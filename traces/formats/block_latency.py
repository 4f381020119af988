"""Reads the text of block_latency.bt: latency histograms by operation and size class, as JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dualblade.linux.files import write_json
from dualblade.run.run_files import RunFile
from traces.decode import read_header
from traces.schema import TraceInfo
from traces.text import LineCounts, blocks

FILE_NAME = RunFile.BLOCK_LATENCY
VERSION = 1
OPERATIONS = ("read", "write", "deallocate")
SIZES = ("below 128 KiB", "below 1 MiB", "1 MiB and more")

_HISTOGRAM = re.compile(rb"@us\[(\d), (\d)\]: *")
_BUCKET = re.compile(rb"\[(\d+)([KMG]?)(?:, (\d+)([KMG]?)\)|\]) +(\d+) \|.*\|")
_BYTES = re.compile(rb"@bytes\[(\d), (\d)\]: (\d+)")
_UNITS = {b"": 1, b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30}


def write(raw: Path, out: Path) -> TraceInfo:
    """Write the histograms, complete or not at all: [us from, us to, requests] by operation and size class.

    Raises:
        TraceError: the text cannot be read, or is of no known format.
    """
    source, _ = read_header(raw)
    counts = LineCounts()
    histograms = _read(raw, counts)
    counted = counts.counted_events or 0
    printed = sum(bucket[2] for histogram in histograms for bucket in histogram["buckets"])
    whole = counts.counted_events is not None and counted == printed and not counts.broken_lines
    reason = None if whole else f"the kernel counted {counted:,} requests and the histograms hold {printed:,}"
    info = TraceInfo(
        source=source,
        clock="none",
        valid=whole,
        reason=reason,
        printed_events=printed,
        counted_events=counts.counted_events,
        missed_commands=None if counts.completed is None else max(0, counts.completed - printed),
        broken_lines=counts.broken_lines,
    )
    content = {"version": VERSION, "unit": "us", "histograms": histograms, "info": info.as_dict()}
    write_json(content, out)
    return info


def _read(raw: Path, counts: LineCounts) -> list[dict[str, Any]]:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    for line in (line for block in blocks(raw) for line in block.splitlines()):
        if match := _HISTOGRAM.fullmatch(line):
            current = _entry(found, match)
        elif match := _BYTES.fullmatch(line):
            _entry(found, match)["bytes"] = int(match[3])
        elif (match := _BUCKET.fullmatch(line)) and current is not None:
            low = int(match[1]) * _UNITS[match[2]]
            high = int(match[3]) * _UNITS[match[4]] if match[3] else low + 1
            current["buckets"].append([low, high, int(match[5])])
        else:
            counts.add_other(line)
    return list(found.values())


def _entry(found: dict[tuple[int, int], dict[str, Any]], match: re.Match[bytes]) -> dict[str, Any]:
    op, size = min(int(match[1]), 2), min(int(match[2]), 2)
    return found.setdefault((op, size), {"op": OPERATIONS[op], "size": SIZES[size], "bytes": 0, "buckets": []})

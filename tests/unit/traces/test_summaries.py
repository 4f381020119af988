"""Traces that are added up in the kernel: nothing of what bpftrace prints at the end is lost or made up."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from traces.decode import header
from traces.formats import block_latency, page_cache

LATENCY = """\
Attaching 6 probes...
READY
@bytes[0, 1]: 393216
@bytes[1, 2]: 4194304
@events: 4
@us[0, 1]:
[64, 128)              2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[512, 1K)              1 |@@@@@@@@@@@@@                                       |
@us[1, 2]:
[4K, 8K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

#completed 4
"""
PAGES = """\
Attaching 13 probes...
READY
T,1000
@added: 976
@deleted: 0

@reclaims: 2
@reclaim_ns: 5000
T,2000
@written: 7
"""


def raw(folder: Path, script: str, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_bytes(header(script, {}) + text.encode())
    return path


def test_histograms_come_back_by_operation_and_size(tmp_path: Path) -> None:
    info = block_latency.write(raw(tmp_path, "block_latency", LATENCY), tmp_path / "out.json")
    assert (info.valid, info.printed_events, info.missed_commands) == (True, 4, 0)
    read, write = json.loads((tmp_path / "out.json").read_text())["histograms"]
    assert (read["op"], read["size"], read["bytes"]) == ("read", "below 1 MiB", 393216)
    assert read["buckets"] == [[64, 128, 2], [512, 1024, 1]]
    assert (write["op"], write["size"], write["buckets"]) == ("write", "1 MiB and more", [[4096, 8192, 1]])


def test_histograms_that_do_not_add_up_are_invalid(tmp_path: Path) -> None:
    damaged = LATENCY.replace("[512, 1K)              1", "[512, 1K)")
    info = block_latency.write(raw(tmp_path, "block_latency", damaged), tmp_path / "out.json")
    assert not info.valid
    assert "counted 4 requests and the histograms hold 3" in str(info.reason)


def test_the_page_caches_intervals_are_rows(tmp_path: Path) -> None:
    info = page_cache.write(raw(tmp_path, "page_cache", PAGES), tmp_path / "out.parquet")
    assert info.valid
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    nothing = dict.fromkeys(page_cache.COUNTS, 0)
    assert rows == [
        nothing | {"end_ns": 1000, "added": 976, "reclaims": 2, "reclaim_ns": 5000},
        nothing | {"end_ns": 2000, "written": 7},
    ]

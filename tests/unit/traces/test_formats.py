"""Traces that others took, by blkparse, biosnoop and the CHEOPS'25 artifact, come into the same columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from traces.decode import decode, main
from traces.schema import TraceInfo, read

BLKPARSE = """\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  P   N [kjournald]
  8,0    3        3     0.000002197   697  Q   W 223490 + 8 [kjournald]
  8,0    3       11     0.000009507   697  D   W 223490 + 8 [kjournald]
  8,0    3       12     0.000012000   697  D   R 4096 + 256 [kjournald]
  8,0    3       13     0.000012500   697  R   R 4096 + 256 [0]
  8,0    1        1     0.000030000   697  D   R 4096 + 256 [kjournald]
  8,0    1        2     0.000300000     0  C   R 4096 + 256 [0]
  8,0    1        3     0.001000000     0  C   W 223490 + 8 [-5]
  8,0    1        4     0.002000000   697  D  FN [kworker/1:1H]
CPU0 (8,0):
 Reads Queued:           1,      128KiB\t Writes Queued:           1,        4KiB
 IO unplugs:             1        \t Timer unplugs:           0

Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 10 entries
Skips: 0 forward (0 -   0.0%)
"""
BIOSNOOP = """\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
0.000004000 IPC I/O Child  1234    nvme0n1   R 2048       131072    0.01   0.500
0.001500000 kworker/u8:0   77      nvme0n1   W 8192       4096      0.00   0.250
"""
BIOSNOOP_SHORT = """\
TIME(s)        COMM           PID    DISK    T  SECTOR    BYTES   LAT(ms)
1.000000       dd             9      sda     R  16        4096       1.00
"""
CHEOPS = """\
Attaching 1 probe...
45502109053447, RA, 131072, 170104688, 256
45502109071121, W, 4096, 170104864, 8
"""


def decoded(folder: Path, text: str, source: str) -> tuple[list[dict[str, Any]], TraceInfo]:
    (folder / "t.txt").write_text(text)
    info = decode(folder / "t.txt", folder / "t.parquet", source)
    return read(folder / "t.parquet")[0].to_pylist(), info


def times(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, int, int]]:
    return [(r["op"], r["offset_bytes"] // 512, r["bytes"], r["issue_ns"], r["complete_ns"]) for r in rows]


def test_blkparse_gives_what_reached_the_driver(tmp_path: Path) -> None:
    rows, info = decoded(tmp_path, BLKPARSE, "blkparse")
    assert times(rows) == [
        ("write", 223490, 4096, 9_507, 1_000_000),
        ("read", 4096, 131072, 30_000, 300_000),
        ("flush", -1, 0, 2_000_000, -1),
    ]
    assert [row["status"] for row in rows] == [5, 0, -1]
    assert [row["depth_at_issue"] for row in rows] == [1, 2, 1]
    assert {row["device"] for row in rows} == {"8:0"}
    assert (info.valid, info.broken_lines, info.requeues) == (True, 0, 1)


def test_biosnoop_gives_issue_from_latency(tmp_path: Path) -> None:
    rows, info = decoded(tmp_path, BIOSNOOP, "biosnoop")
    assert times(rows) == [
        ("read", 2048, 131072, 4_000 - 500_000, 4_000),
        ("write", 8192, 4096, 1_250_000, 1_500_000),
    ]
    assert {row["device"] for row in rows} == {"nvme0n1"}
    assert (info.valid, info.broken_lines) == (True, 0)


def test_biosnoop_without_queue_time(tmp_path: Path) -> None:
    rows, _ = decoded(tmp_path, BIOSNOOP_SHORT, "biosnoop")
    assert times(rows) == [("read", 16, 4096, 999_000_000, 1_000_000_000)]


def test_cheops_has_issues_only(tmp_path: Path) -> None:
    rows, info = decoded(tmp_path, CHEOPS, "cheops25")
    assert times(rows) == [
        ("read", 170104688, 131072, 45502109053447, -1),
        ("write", 170104864, 4096, 45502109071121, -1),
    ]
    assert {row["depth_at_issue"] for row in rows} == {-1}
    assert (info.valid, info.printed_events, info.broken_lines) == (True, 2, 0)


@pytest.mark.parametrize(
    ("text", "source"), [(BLKPARSE, "blkparse"), (BIOSNOOP, "biosnoop"), (CHEOPS, "cheops25")], ids=lambda v: v[:8]
)
def test_broken_lines_are_counted_and_told(
    tmp_path: Path, text: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good, _ = decoded(tmp_path, text, source)
    rows, info = decoded(tmp_path, text + "half a li\n\x00\n", source)
    assert rows == good
    assert info.broken_lines == 2
    assert main([str(tmp_path / "t.txt"), str(tmp_path / "t.parquet"), "--format", source]) == 2
    assert "2 lines could not be read, the first is 'half a li'" in capsys.readouterr().err

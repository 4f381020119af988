"""What fio is asked to do covers the file exactly, and its report is read as it is printed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bench.fio import Load, parse_rate

MIB = 1 << 20


def options(load: Load, *, huge_pages: bool = True) -> dict[str, str]:
    arguments = load.arguments("read", Path("/proc/7/fd/3"), huge_pages=huge_pages)
    return dict(argument.removeprefix("--").split("=") for argument in arguments if "=" in argument)


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_the_jobs_share_the_file_without_gap_or_overlap(jobs: int) -> None:
    load = Load(size_bytes=64 * MIB, chunk_bytes=MIB, jobs=jobs, depth=16)
    asked = options(load)
    parts = [int(asked["offset_increment"]) * job for job in range(int(asked["numjobs"]))]
    covered = [range(start, start + int(asked["size"])) for start in parts]
    assert covered[0].start == 0
    assert covered[-1].stop == 64 * MIB
    assert all(before.stop == after.start for before, after in itertools.pairwise(covered))


def test_chunk_depth_and_kind_of_memory_are_passed_on() -> None:
    load = Load(size_bytes=64 * MIB, chunk_bytes=MIB, jobs=1, depth=16)
    asked = options(load)
    assert (int(asked["bs"]), int(asked["iodepth"]), asked["direct"]) == (MIB, 16, "1")
    assert (asked["iomem"], int(asked["hugepage-size"])) == ("mmaphuge", 2 * MIB)
    assert options(load, huge_pages=False)["iomem"] == "malloc"


def test_reserved_memory_is_no_less_than_the_buffers() -> None:
    load = Load(size_bytes=64 * MIB, chunk_bytes=MIB, jobs=2, depth=16)
    assert load.buffer_bytes >= 2 * 16 * MIB


def test_the_rate_is_found_behind_warnings() -> None:
    report = {"jobs": [{"read": {"bw_bytes": 2_500_000_000}, "write": {"bw_bytes": 0}}]}
    assert parse_rate("note: both iodepth >= 1 ...\n" + json.dumps(report), "read") == 2.5

"""A link in proportion to this disk: measured by fio once, and in force in each result of the sweep."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.harness_process import Harness, needs_root_and_cgroup

pytestmark = needs_root_and_cgroup()


def test_the_link_is_a_multiple_of_what_fio_reads_here(disk_path: Path) -> None:
    harness = Harness(disk_path)
    ratio = 0.25  # so slow that any machine's memory can stand for it
    sweep = ["variant=nvme_direct_only,dual_blade", "storage.chunk_bytes=524288", "storage.queue_depth=4"]
    done = harness.run("-m", "device=paced_ratio", f"device.pace.storage_ratio={ratio}", *sweep, real=True)
    assert done.returncode == 0, done.stderr
    first, second = harness.records()
    rate = first.environment["storage_rate"]
    assert rate == second.environment["storage_rate"] and rate["source"].startswith("fio-")
    words = shlex.split(rate["command"])
    assert {"--rw=read", "--bs=524288", "--iodepth=4", "--numjobs=2", "--direct=1"} <= set(words)
    for record in (first, second):
        link = record.result["link"]
        assert link["storage_gb_per_s"] == rate["read_gb_per_s"] > 0 and link["storage_ratio"] == ratio
        assert link["gb_per_s"] == pytest.approx(ratio * rate["read_gb_per_s"])
        reads_s = record.result["bytes"]["decode"]["asked_read"] / 1e9 / link["gb_per_s"]
        assert sum(record.result["decode_s"]) >= 0.99 * reads_s
    assert harness.left_behind() == []

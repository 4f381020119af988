"""I/O paths by themselves: what a configuration may ask for, and how fio's report is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dualblade.errors import ConfigurationError, StorageError
from experiments.io_paths.io_run import check_mode, read_cell
from experiments.io_paths.io_target import IoTarget
from experiments.points.any_point import from_config
from experiments.points.io_point import IoPoint, available
from experiments.points.sweep import compose_points
from experiments.processes import fio


def config(**io: Any) -> dict[str, Any]:
    (composed,) = compose_points(["+experiment=io_paths", "repetition=0", "io.path=ext4_direct"])
    changed = copy.deepcopy(composed)
    changed["io"] |= io
    return changed


def point(**io: Any) -> IoPoint:
    made = from_config(config(**io))
    assert isinstance(made, IoPoint)
    return made


def test_the_experiment_covers_the_papers_sizes_and_depths() -> None:
    sizes, depths = zip(*point().io.cells, strict=True)
    assert (min(sizes), max(sizes), min(depths), max(depths)) == (4 << 10, 4 << 20, 1, 64)
    assert len(set(point().io.cells)) == len(point().io.cells)


def test_the_experiment_takes_the_paths_that_the_storage_has() -> None:
    swept = {from_config(composed).group for composed in compose_points(["+experiment=io_paths"])}
    assert swept == set(available("file")) == {"ext4_buffered", "ext4_direct", "block_direct"}
    assert "io_uring_cmd" in available("nvme")


@pytest.mark.parametrize(
    ("io", "cause"),
    [
        ({"path": "ext5"}, "io.path='ext5'"),
        ({"op": "trim"}, "io.op='trim'"),
        ({"block_kib": []}, "io.block_kib=[]"),
        ({"block_kib": 4}, "io.block_kib=4"),
        ({"queue_depths": [0]}, "io.queue_depths=[0]"),
        ({"runtime_s": 0}, "io.runtime_s=0"),
        ({"size_mib": 2.5}, "io.size_mib"),
        ({"size_mib": 6}, "io.size_mib=6 is no multiple"),
        ({"queue_depth": 3}, "io.queue_depth is not a setting; did you mean queue_depths?"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(io: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        point(**io)
    assert cause in str(error.value) and "\n" not in str(error.value)


def test_identity_is_the_measurement_and_not_where_it_was_started() -> None:
    assert point().config_hash == from_config(config() | {"results_dir": "elsewhere"}).config_hash
    assert len({point().config_hash, point(op="write").config_hash, point(runtime_s=2).config_hash}) == 3
    assert point().name == from_config(config() | {"repetition": 3}).name


def test_fios_report_is_read_as_it_is_printed() -> None:
    """Numbers worked out by hand: 200 requests of 1 MiB in 500 ms."""
    done = {
        "io_bytes": 200 << 20,
        "total_ios": 200,
        "bw_bytes": 419430400,
        "runtime": 500,
        "lat_ns": {"mean": 2500000.0, "percentile": {"50.000000": 2400000, "99.000000": 9000000}},
    }
    job = fio.parse("fio: warning\n" + json.dumps({"jobs": [{"read": done, "usr_cpu": 2.0, "sys_cpu": 30.0}]}))
    cell = read_cell(job, "read")
    assert cell["bytes_per_s"] == pytest.approx(200 * 2**20 / 0.5)
    assert cell["latency_us"] == {"mean": 2500, "p50": 2400, "p99": 9000}
    assert (cell["seconds"], cell["cpu"]["system_share"]) == (0.5, 0.3)


@pytest.mark.parametrize(("cached", "resident_bytes"), [(False, 4096), (True, 0), (True, 800)])
def test_a_mode_that_was_not_in_force_is_an_error(cached: bool, resident_bytes: int) -> None:
    target = IoTarget(Path("unused"), (), cached, "the target")
    with pytest.raises(StorageError, match="the target"):
        check_mode(target, 1000, resident_bytes)
    check_mode(target, 1000, 1000 if cached else 0)


def test_a_grid_leaves_out_what_is_too_large_for_one_request() -> None:
    grid = point(block_kib=[4, 64, 256], queue_depths=[1, 8]).io
    target = IoTarget(Path("unused"), (), False, "a namespace", block_bytes=4096, most_request_bytes=64 << 10)
    assert target.cells(grid) == [(4096, 1), (4096, 8), (65536, 1), (65536, 8)]
    assert IoTarget(Path("unused"), (), True, "a file").cells(grid) == grid.cells


@pytest.mark.parametrize(
    ("block_kib", "sentence"),
    [
        ([3, 12], "io.block_kib=[3] is not of whole blocks of a namespace, which are 4,096 bytes; take multiples of 4"),
        (
            [256, 1024],
            "io.block_kib=[256, 1024] are all more than one request of a namespace can have; take 64 or less",
        ),
    ],
)
def test_a_grid_that_the_device_does_not_take_is_one_sentence(block_kib: list[int], sentence: str) -> None:
    target = IoTarget(Path("unused"), (), False, "a namespace", block_bytes=4096, most_request_bytes=64 << 10)
    with pytest.raises(ConfigurationError) as error:
        target.cells(point(block_kib=block_kib, size_mib=3).io)
    assert str(error.value) == sentence


def test_a_folders_colon_does_not_lead_fio_elsewhere() -> None:
    assert "--filename=/mnt/a\\:b/io" in IoTarget(Path("/mnt/a:b/io"), (), True, "a file").job

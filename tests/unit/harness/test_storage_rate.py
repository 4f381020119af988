"""A link in proportion to the storage: what it may be, whose rate it takes, and that each storage is measured once."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from dualblade.config.device import LinkPace
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from experiments.io_paths.io_target import IoTarget
from experiments.machine import storage_rate
from experiments.machine.journal import Journal
from experiments.machine.storage_rate import StorageRate, StorageRates
from experiments.points.point import Point
from experiments.points.sweep import compose_points


@functools.cache
def point(*overrides: str) -> Point:
    (config,) = compose_points(overrides)
    return Point.from_config(config)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.json")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[StorageConfig, int]]:
    """What was measured; a different rate each time."""
    done: list[tuple[StorageConfig, int]] = []

    def measure(storage: StorageConfig, threads: int, journal: Journal) -> StorageRate:
        done.append((storage, threads))
        return StorageRate(float(len(done)), "fio")

    monkeypatch.setattr(storage_rate, "measure", measure)
    return done


def test_a_storage_is_measured_once_for_all_points(journal: Journal, measured: list[tuple[StorageConfig, int]]) -> None:
    rates = StorageRates()
    for overrides in (["memory_gb=2"], ["memory_gb=4", "device.pace.storage_ratio=4"]):
        rate = rates.wanted_by(point("device=paced_ratio", *overrides).run, journal)
        assert rate and rate.read_gb_per_s == 1.0
    other = rates.wanted_by(point("device=paced_ratio", "storage.queue_depth=4").run, journal)
    assert other and other.read_gb_per_s == 2.0
    assert [storage.queue_depth for storage, _ in measured] == [16, 4]


@pytest.mark.parametrize("overrides", [["device=host"], ["device=paced"]], ids=str)
def test_other_links_want_no_rate(
    journal: Journal, measured: list[tuple[StorageConfig, int]], overrides: list[str]
) -> None:
    assert StorageRates().wanted_by(point(*overrides).run, journal) is None
    known = point("device=paced_ratio", "device.pace.storage_gb_per_s=3")
    assert StorageRates().wanted_by(known.run, journal) is None and known.run.device.pace
    assert known.run.device.pace.rate_gb_per_s == pytest.approx(6.9)
    assert measured == []


def test_a_paced_storages_rate_is_the_stated_one(journal: Journal, measured: list[tuple[StorageConfig, int]]) -> None:
    run = point("device=paced_ratio", "storage=paced", "storage.pace.read_gb_per_s=1.5").run
    assert StorageRates().wanted_by(run, journal) == StorageRate(1.5, "stated: a stated rate")
    assert measured == []


def test_a_block_device_is_not_written_for_it(journal: Journal) -> None:
    storage = ["storage=block", "storage.block_device=/dev/null", "storage.serial=none"]
    with pytest.raises(ConfigurationError, match=r"set device\.pace\.storage_gb_per_s"):
        StorageRates().wanted_by(point("device=paced_ratio", *storage).run, journal)


def test_fio_reads_with_the_threads_chunk_and_depth_of_the_direct_path() -> None:
    target = IoTarget(Path("io"), ("--ioengine=io_uring", "--direct=1"), cached=False, what="a file")
    options = storage_rate.reading(target, 3 << 20, depth=16, threads=2, huge=False)
    assert {"--rw=read", f"--bs={3 << 20}", "--iodepth=16", "--numjobs=2", "--direct=1"} <= set(options)
    part_bytes = next(int(option.partition("=")[2]) for option in options if option.startswith("--size="))
    assert part_bytes % (3 << 20) == 0 and 0 < 2 * part_bytes <= storage_rate.SIZE_BYTES
    assert f"--offset_increment={part_bytes}" in options


def test_the_engine_gets_the_rate_and_the_points_identity_has_none() -> None:
    stated = point("device=paced_ratio")
    pace = stated.engine_config(Path("kv"), 3.4)["device"]["pace"]
    assert (pace["storage_ratio"], pace["storage_gb_per_s"]) == (2.3, 3.4)
    assert stated.config["device"]["pace"]["storage_gb_per_s"] is None


def test_a_rate_that_nobody_measured_is_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="which is not known here; start the run by") as error:
        _ = LinkPace(None, "a test", storage_ratio=2.3).rate_gb_per_s
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"gb_per_s": None}, "gb_per_s=None and device.pace.storage_ratio=None do not go together"),
        ({"gb_per_s": 1.0, "storage_ratio": 2.0}, "give the link's rate or its ratio"),
        ({"gb_per_s": None, "storage_ratio": 0.0}, "storage_ratio=0.0 cannot be used"),
        ({"gb_per_s": None, "storage_ratio": 1.0, "storage_gb_per_s": -1.0}, "storage_gb_per_s=-1.0 cannot be used"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(fields: dict[str, float | None], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(cause)):
        LinkPace(**fields, source="a test")  # type: ignore[arg-type]

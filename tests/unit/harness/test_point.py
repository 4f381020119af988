"""A point: its limit, its identity, and what it refuses."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from dualblade.errors import BudgetError, ConfigurationError
from experiments.errors import RunError
from experiments.memory_limit import MIN_BUDGET_BYTES, check_budget, check_growth
from experiments.points.point import Point, Settings
from experiments.points.sweep import compose_points


@functools.cache
def point(*overrides: str) -> Point:
    (config,) = compose_points(overrides)
    return Point.from_config(config)


def test_the_limit_is_the_papers_less_its_overhead_divided_by_the_scale() -> None:
    assert point("memory_gb=4", "scale=8").budget_bytes == 375_000_000
    assert point("memory_gb=4", "scale=1", "paper_overhead_gb=0.3").budget_bytes == 3_700_000_000
    assert point("memory_gb=null").budget_bytes is None


def test_a_ratio_takes_the_place_of_the_limit() -> None:
    # 543 tokens of 32 layers, 4 sequences, 32 heads of 128, K and V in fp16
    working_set_bytes = 543 * 32 * 4 * 32 * 128 * 2 * 2
    assert point("budget_ratio=0.5", "memory_gb=4").budget_bytes == working_set_bytes // 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["memory_gb=4"], ["memory_gb=4.0"]),
        ([], ["decode_iterations=31"]),
        (["budget_ratio=0.5", "memory_gb=4"], ["budget_ratio=0.5", "memory_gb=8"]),
        ([], ["results_dir=elsewhere", "deadline_s=1", "rerun_stale=true"]),
        (["model.weights=/here/model.gguf"], ["model.weights=/there/model.gguf"]),
    ],
)
def test_what_is_measured_alike_has_one_identity(one: list[str], other: list[str]) -> None:
    assert point(*one).config_hash == point(*other).config_hash
    assert point(*one).name == point(*other).name


@pytest.mark.parametrize(
    "override",
    [
        "variant=baseline",
        "memory_gb=5",
        "budget_ratio=0.5",
        "paper_overhead_gb=0.3",
        "scale=4",
        "decode_iterations=8",
        "storage.read_ahead_kb=256",
        "storage.directory=/mnt/other",
        "device=host_no_compute",
        "variant.slack=0.1",
    ],
)
def test_what_is_measured_differently_has_another_identity_and_folder(override: str) -> None:
    assert point(override).config_hash != point().config_hash
    assert point(override).name != point().name


def test_repetitions_share_a_folder_but_no_identity() -> None:
    first, second = point("repetition=0"), point("repetition=1")
    assert first.name == second.name
    assert first.config_hash != second.config_hash


def test_the_engine_gets_the_runs_own_folder_and_the_point_keeps_its_own() -> None:
    original = point("storage.directory=kv")
    assert original.engine_config(Path("/kv/run"))["storage"]["directory"] == "/kv/run"
    assert original.config["storage"]["directory"] == "kv"


def test_a_block_device_of_its_own_takes_the_direct_groups_bytes_off_the_file_system() -> None:
    block = ["storage=block", "storage.block_device=/dev/null", "storage.serial=none", "memory_gb=4"]
    assert point("memory_gb=4").file_bytes == point().working_set_bytes
    assert point(*block, "variant=dual_blade").file_bytes == 375_000_000
    assert point(*block, "variant=baseline").file_bytes == point().working_set_bytes


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("scale=7", ["scale=7", "use one of 1, 2, 4, 8, 16, 32"]),
        ("memory_gb=much", ["memory_gb='much'", "not a number"]),
        ("memory_gb=inf", ["memory_gb=inf", "not a number"]),
        ("memory_gb=1e300", ["memory_gb=1e+300", "not a number"]),
        ("repetition=-1", ["repetition=-1", "0, 1, 2"]),
        ("decode_iterations=99", ["decode_iterations=99", "1..31"]),
        ("variant.overflow=swap", ["variant.overflow='swap'", "leave, evict, direct"]),
    ],
)
def test_what_no_run_can_use_is_refused_in_one_sentence(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        point(override)
    assert all(word in str(refusal.value) for word in words)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trace.buffer_pages=1000", "trace.buffer_pages=1000 cannot be used; give a power of two, as in 4096"),
        ("trace.buffer_pages=0", "trace.buffer_pages=0 cannot be used"),
        ("trace.attach_timeout_s=long", "trace.attach_timeout_s='long' has the wrong type; expected float"),
        ("+trace.pages=8", "trace.pages is not a setting; known are name, script"),
    ],
)
def test_what_no_tracer_takes_is_refused_in_one_sentence(override: str, said: str) -> None:
    (config,) = compose_points(["trace=block_requests", override])
    with pytest.raises(ConfigurationError) as refusal:
        Settings.from_config(config)
    assert str(refusal.value).startswith(said)


def test_a_limit_below_the_process_is_refused_with_what_it_takes() -> None:
    with pytest.raises(BudgetError) as refusal:
        check_budget(point("memory_gb=0.5", "scale=8"), -62_500_000, 250_000_000)
    assert "250,000,000" in str(refusal.value)
    assert "187,500,000" in str(refusal.value)
    assert f"{250_000_000 + MIN_BUDGET_BYTES:,}" in str(refusal.value)


@pytest.mark.parametrize("too_little", ["memory_gb=1", "budget_ratio=0.001"])
def test_the_limit_named_in_the_refusal_is_accepted(too_little: str) -> None:
    refused = point(too_little)
    assert refused.budget_bytes is not None
    with pytest.raises(BudgetError, match="or more") as refusal:
        check_budget(refused, refused.budget_bytes, 250_000_000)
    (setting,) = re.findall(r"so set (\S+) or more", str(refusal.value))
    enough = point(setting)
    assert enough.budget_bytes is not None
    check_budget(enough, enough.budget_bytes, 250_000_000)


def test_a_limit_above_what_the_machine_has_is_refused() -> None:
    with pytest.raises(BudgetError, match="raise scale"):
        check_budget(point(), 1 << 60, 250_000_000)


def limits(process_bytes: int, peak_bytes: int, budget_bytes: int | None) -> dict[str, int | None]:
    return {"process_bytes": process_bytes, "process_peak_bytes": peak_bytes, "budget_bytes": budget_bytes}


@pytest.mark.parametrize(
    "accepted",
    [limits(800, 790, 100), limits(8 * 10**8, 81 * 10**7, 10**8), limits(800, 810, 0), limits(800, 9000, None)],
    ids=["shrunk", "a tenth", "a little", "no limit"],
)
def test_a_process_may_grow_by_a_tenth_of_its_budget(accepted: dict[str, int | None]) -> None:
    check_growth(accepted)


def test_a_process_that_took_its_page_cache_back_has_no_result() -> None:
    with pytest.raises(RunError, match=r"grew by 38,400,000 bytes .* out of 66,000,000 for page cache"):
        check_growth(limits(831_900_000, 870_300_000, 66_000_000))

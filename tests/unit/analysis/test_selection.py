"""Runs that differ in more than variant, limit and repetition never meet in one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.metrics.run_metrics import measure
from analysis.results.load import load
from analysis.selection.comparison import OVER_LIMITS, OVER_LIMITS_AND_LRUS, missing_points
from analysis.selection.filters import split_by_ssd
from tests.support.analysis_results import VARIANTS, write_run, write_sweep

SETUPS: list[dict[str, dict[str, Any]]] = [
    {"config": {"scale": 16}},
    {"config": {"model.name": "opt_13b"}},
    {"config": {"model.n_layers": 24}},
    {"config": {"workload.prompt_tokens": 256}},
    {"config": {"device.gpu.name": "another"}},
    {"config": {"storage.page_cache_io": "rw"}},
    {"config": {"storage.backend": "block"}},
    {"config": {"testbed.name": "guest"}},
    {"config": {"trace.name": "block_requests"}},
    {"config": {"paper_overhead_gb": 0.3}},
    {"environment": {"emulated": True}},
    {"environment": {"cpu": "another"}},
    {"environment": {"cgroup.version": 2}},
    {"environment": {"storage.serial": "S2"}},
    {"environment": {"kernel": "5.19"}},
    {"environment": {"storage.serial": None}},
]


def runs_in(results_dir: Path) -> pd.DataFrame:
    return measure(load(results_dir))


@pytest.mark.parametrize("other", SETUPS, ids=str)
def test_another_setup_is_left_out_and_named(tmp_path: Path, other: dict[str, dict[str, Any]]) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_sweep(tmp_path, limits_gb=[2.0], experiment="other", **other)
    selection = OVER_LIMITS.select(runs_in(tmp_path))
    assert len(selection.runs) == 8
    assert all(run.startswith("default/") for run in selection.runs.index)
    (sentence,) = selection.left_out
    ((name, value),) = next(iter(other.values())).items()
    setting = name.replace("kernel", "kernel_series").removesuffix(".name")
    assert sentence == f"4 runs of {', '.join(sorted(VARIANTS))} with {setting}={value}"


@pytest.mark.parametrize(
    "same",
    [
        {"environment": {"code_revision": "fedcba", "code_hash": "another"}},
        {"environment": {"kernel": "6.0.999-patched"}},
        {"config": {"storage.directory": "elsewhere"}},
        {"config": {"testbed.kernel": "linux-image-amd64"}},
        {"environment": {"started_at": "2001-01-01T00:00:00+00:00"}},
    ],
    ids=str,
)
def test_sweeps_of_one_setup_share_their_points(tmp_path: Path, same: dict[str, dict[str, Any]]) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_sweep(tmp_path, limits_gb=[3.0, 5.0], experiment="finer", **same)
    selection = OVER_LIMITS.select(runs_in(tmp_path))
    assert len(selection.runs) == 16
    assert selection.left_out == ()


def test_runs_under_another_lru_are_left_out(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_sweep(tmp_path, limits_gb=[2.0], experiment="lru", environment={"lru_generation": "0x0007"})
    (sentence,) = OVER_LIMITS.select(runs_in(tmp_path)).left_out
    assert "lru=multi-generational" in sentence


def test_runs_of_other_lengths_are_left_out(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    longer = {"decode_s": [0.5] * 31, "hit_rate.decode_per_iteration": [0.0] * 31}
    write_sweep(tmp_path, limits_gb=[2.0], experiment="long", result=longer)
    (sentence,) = OVER_LIMITS.select(runs_in(tmp_path)).left_out
    assert "decode_iterations=31" in sentence


def test_most_points_win_over_most_runs(tmp_path: Path) -> None:
    write_sweep(tmp_path, variants=["baseline"], limits_gb=[2.0, 4.0], repetitions=5)
    write_sweep(tmp_path, variants=["baseline"], limits_gb=[2.0, 3.0, 4.0], experiment="w", config={"scale": 4})
    assert OVER_LIMITS.select(runs_in(tmp_path)).runs["config.scale"].unique().tolist() == [4]


def test_one_setting_of_a_variant_is_one_curve(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_run(tmp_path, "dual_blade", 4.0, experiment="knob", config={"variant.knob": 123456})
    selection = OVER_LIMITS.select(runs_in(tmp_path))
    assert set(selection.runs["config.variant.knob"]) == {"all"}
    (sentence,) = selection.left_out
    assert "dual_blade" in sentence and "variant.knob=123456" in sentence


def test_a_column_kept_apart_may_differ(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_sweep(tmp_path, limits_gb=[2.0], experiment="lru", environment={"lru_generation": "0x0007"})
    selection = OVER_LIMITS_AND_LRUS.select(runs_in(tmp_path))
    assert sorted(selection.runs["lru"].unique()) == ["classic", "multi-generational"]


def test_ssds_are_told_apart_by_serial(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0])
    write_sweep(tmp_path, limits_gb=[2.0], experiment="b", environment={"storage.serial": "S2"})
    write_sweep(tmp_path, limits_gb=[2.0], experiment="n", environment={"storage.serial": None, "storage.model": None})
    write_sweep(tmp_path, limits_gb=[2.0], experiment="g", config={"testbed.name": "guest"})
    groups = split_by_ssd(runs_in(tmp_path))
    assert [len(group) for _, group in groups] == [4, 4, 4, 4]
    assert {name for name, _ in groups} == {"guest, synthetic disk", "local", "local, synthetic disk"}


def test_emulated_and_virtualised_guests_do_not_meet(tmp_path: Path) -> None:
    for experiment, accelerator, limits_gb in (("tcg", "tcg", [2.0, 4.0]), ("kvm", "kvm", [2.0])):
        guest = {"emulated": True, "guest": {"accelerator": accelerator}}
        write_sweep(tmp_path, limits_gb=limits_gb, experiment=experiment, environment=guest)
    (sentence,) = OVER_LIMITS.select(runs_in(tmp_path)).left_out
    assert "guest.accelerator=kvm" in sentence


@pytest.mark.parametrize(("rates", "kept"), [((1.0, 1.04, 0.97), 3), ((1.0, 1.0, 1.06), 2), ((1.0, 1.2), 1)])
def test_runs_whose_link_was_paced_to_another_rate_are_left_out(
    tmp_path: Path, rates: tuple[float, ...], kept: int
) -> None:
    for turn, rate in enumerate(rates):
        write_run(tmp_path, repetition=turn, result={"link": {"gb_per_s": rate, "storage_ratio": 2.3}})
    write_run(tmp_path, memory_gb=8.0, result={"link": {"gb_per_s": 5.0, "storage_ratio": 2.3}})
    selection = OVER_LIMITS.select(runs_in(tmp_path))
    assert len(selection.runs) == kept + 1
    assert len(selection.left_out) == (kept < len(rates))
    assert all(f"a link of {max(rates):.3g} GB/s" in text for text in selection.left_out)


@pytest.mark.parametrize(
    ("config", "environment", "sentence"),
    [
        (
            {
                "testbed": {"name": "guest", "lru": "classic"},
                "storage.name": "ssd_a",
                "emulated_ssd": {"mdts_kib": 128},
            },
            {"emulated": True, "cpu": "another", "kernel": "6.1", "storage.serial": "A", "cgroup.version": 2},
            "1 run of baseline with testbed=guest",
        ),
        (
            {"storage.name": "ssd_b", "storage.serial": "B", "emulated_ssd": {"serial": "B", "read_mb_per_s": 62}},
            {"storage.serial": "B", "storage.model": "another"},
            "1 run of baseline with storage=ssd_b",
        ),
        (
            {"scale": 16, "workload.name": "em_beer", "workload.batch_size": 16, "decode_iterations": 2},
            {},
            "1 run of baseline with workload=em_beer, scale=16",
        ),
        ({"model": {"name": "opt_13b", "n_layers": 40}}, {}, "1 run of baseline with model=opt_13b"),
        ({"trace": {"name": "io_layers", "script": "io_layers"}}, {}, "1 run of baseline with trace=io_layers"),
        ({"testbed.lru": "multigen"}, {"lru_generation": "0x0007"}, "1 run of baseline with lru=multi-generational"),
        (
            {"device.link": "paced", "storage.read_ahead_kb": 0, "storage.backend": "block", "paper_overhead_gb": 0.3},
            {},
            "1 run of baseline with storage.backend=block, storage.read_ahead_kb=0 and 2 more",
        ),
    ],
)
def test_a_group_left_out_is_named_by_what_a_person_chose(
    tmp_path: Path, config: dict[str, Any], environment: dict[str, Any], sentence: str
) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    write_run(tmp_path, experiment="other", config=config, environment=environment)
    assert OVER_LIMITS.select(runs_in(tmp_path)).left_out == (sentence,)


def test_missing_points_name_variant_and_limits(tmp_path: Path) -> None:
    write_sweep(tmp_path, variants=["baseline"], limits_gb=[2.0, 4.0, 9.5])
    write_sweep(tmp_path, variants=["dual_blade"], limits_gb=[4.0])
    assert missing_points(runs_in(tmp_path)) == ["dual_blade has no run at 2, 9.5 GB"]

"""A figure says where its numbers came from, and says so when they came from more than one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.drawing.caption import note, overlap_note, provenance
from analysis.metrics.run_metrics import measure
from analysis.results.load import load
from tests.support.analysis_results import write_sweep


def caption_of(results_dir: Path) -> str:
    return provenance("Subject.", measure(load(results_dir)))


def test_the_note_holds_what_must_stay_with_the_picture(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0], repetitions=3)
    text = note(measure(load(tmp_path)))
    for part in (
        "Testbed local",
        "backend file",
        "opt_6_7b",
        "scale 8",
        "24 runs, 3 per point",
        "1 GB overhead assumed",
    ):
        assert part in text


def test_the_caption_holds_the_whole_provenance(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0, 4.0])
    text = caption_of(tmp_path)
    for part in (
        "Subject.",
        "8 runs, 1 per point; one run per point, so no interval",
        "synthetic disk, ext4, read_ahead_kb 128",
        "workload paper, scale 8 (batch 4), 8 decode iterations",
        "not extrapolated",
        "Device host",
        "Test GPU",
        "(memory - 1 GB) / 8",
        "assumption",
        "Kernel 6.0-synthetic, cgroup v1, classic LRU",
        "Code 1234567890 (one engine)",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"code_revision": "fedcba", "code_hash": "another"}, "Code 1234567890 and fedcba (the figure mixes engines)"),
        ({"kernel": "6.1-synthetic"}, "Kernel 6.0-synthetic and 6.1-synthetic (the figure mixes kernels)"),
        ({"code_dirty": True}, "with uncommitted changes"),
        ({"emulated": True}, "Testbed local (emulated SSD)"),
        ({"lru_generation": "0x0007"}, "classic and multi-generational LRU"),
    ],
)
def test_a_mixture_is_said(tmp_path: Path, environment: dict[str, Any], words: str) -> None:
    write_sweep(tmp_path, limits_gb=[2.0])
    assert words not in caption_of(tmp_path)
    write_sweep(tmp_path, limits_gb=[4.0], experiment="other", environment=environment)
    assert words in caption_of(tmp_path)


@pytest.mark.parametrize("unknown", ["code_revision", "code_dirty", "emulated", "storage.model", "storage.serial"])
def test_what_is_not_known_does_not_stop_a_caption(tmp_path: Path, unknown: str) -> None:
    write_sweep(tmp_path, limits_gb=[2.0], environment={unknown: None})
    assert "None" not in caption_of(tmp_path) and "nan" not in caption_of(tmp_path)


def test_unequal_repetitions_are_a_range(tmp_path: Path) -> None:
    write_sweep(tmp_path, limits_gb=[2.0], repetitions=5)
    write_sweep(tmp_path, limits_gb=[4.0], repetitions=2)
    assert "2 to 5 per point" in note(measure(load(tmp_path)))


def test_a_link_in_proportion_to_the_ssd_is_told_with_its_ratio(tmp_path: Path) -> None:
    link = {"kind": "paced", "emulated": True, "gb_per_s": 7.82, "storage_ratio": 2.3, "storage_gb_per_s": 3.4}
    write_sweep(tmp_path, limits_gb=[2.0, 4.0], result={"link": link})
    runs = measure(load(tmp_path))
    for text in (note(runs), provenance("Subject.", runs), overlap_note(runs, ["memory_gb"])):
        assert "paced link, 2.3x SSD (7.82 GB/s)" in text


def test_many_rates_of_a_link_are_a_range(tmp_path: Path) -> None:
    for turn in range(5):
        link = {"kind": "paced", "gb_per_s": 7.8 + turn / 10, "storage_ratio": 2.3}
        write_sweep(tmp_path, limits_gb=[2.0], experiment=f"sweep {turn}", result={"link": link})
    assert "paced link, 2.3x SSD (7.8 to 8.2 GB/s)" in note(measure(load(tmp_path)))

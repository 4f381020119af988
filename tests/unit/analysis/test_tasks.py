"""The data-wrangling figures and their claim, from results whose numbers follow a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.claims.judges import JUDGES
from analysis.claims.verdict import judge, read_claims
from analysis.figures import wrangling, wrangling_records
from analysis.metrics import run_metrics
from analysis.metrics.accuracy import accuracy_by_task
from analysis.names import WORKLOAD
from analysis.results.load import Results, load
from analysis.selection import setups
from analysis.selection.tasks import TASKS, by_size, relative, replayed
from experiments.points.sweep import CONF
from tests.support.analysis_results import VARIANTS, write_run

TOKENS = 100_000


def write_tasks(results_dir: Path, factor: dict[str, float], **config: Any) -> None:
    """All tasks, twice; DUAL-BLADE takes `factor` of the Baseline's time, or 0.8 of it. Later tasks have more KV."""
    for number, task in enumerate(TASKS):
        for variant in ("baseline", "dual_blade"):
            seconds = 1.0 if variant == "baseline" else factor.get(task, 0.8)
            for turn in (0, 1):
                write_run(
                    results_dir,
                    variant,
                    repetition=turn,
                    experiment=task,
                    config={"workload.name": task} | config,
                    result={
                        "prefill_s": (1 + turn) * seconds,
                        "decode_s": [0.5 * (1 + turn) * seconds] * 8,
                        "plan.working_set_bytes": (number + 1) * TOKENS,
                    },
                )


def read(results_dir: Path) -> Results:
    return run_metrics.with_metrics(load(results_dir))


def test_a_whole_task_is_prefill_and_every_iteration(tmp_path: Path) -> None:
    write_run(tmp_path, result={"prefill_s": 2.0, "decode_s": [1.0] + [0.5] * 7})
    assert read(tmp_path).runs["task_s"].tolist() == [2.0 + 1.0 + 3.5]


def test_a_task_is_relative_to_the_baseline_of_the_same_repetition(tmp_path: Path) -> None:
    write_tasks(tmp_path, {"di_buy": 0.5})
    runs = replayed(read(tmp_path).runs).runs
    ratios = relative(runs, "dual_blade", "task_s").set_index(WORKLOAD)
    assert ratios.loc["di_buy", ["median", "low", "high"]].tolist() == pytest.approx([0.5] * 3)
    assert ratios.loc["em_beer", "median"] == pytest.approx(0.8)
    assert by_size(runs) == list(TASKS)


def test_tasks_of_another_limit_or_missing_ones_are_named(tmp_path: Path) -> None:
    write_tasks(tmp_path, {})
    write_run(tmp_path, "dual_blade", 8.0, config={"workload.name": "di_buy"})
    write_run(tmp_path, "nvme_direct_only", config={"workload.name": "di_buy", "decode_iterations": 8})
    chosen = wrangling.select(read(tmp_path))
    assert set(chosen.runs["memory_gb"]) == {4.0}
    assert any("memory_gb=8" in text for text in chosen.left_out)
    assert any(
        text.startswith("nvme_direct_only has no run of di_restaurant, ed_hospital, em_") for text in chosen.missing
    )


def test_other_workloads_and_a_baseline_alone_are_no_tasks(tmp_path: Path) -> None:
    write_run(tmp_path, "baseline")
    assert wrangling.select(read(tmp_path)).runs.empty
    write_run(tmp_path, "baseline", experiment="tasks", config={"workload.name": "di_buy"})
    assert wrangling.select(read(tmp_path)).runs.empty


def test_the_figure_shows_each_task_once(tmp_path: Path) -> None:
    write_tasks(tmp_path, {})
    runs = wrangling.select(read(tmp_path)).runs
    whole, decode = wrangling.plot(runs).axes
    assert [label.get_text().partition(" (")[0] for label in whole.get_yticklabels()] == list(TASKS.values())
    assert [len(line.get_xdata()) for line in decode.get_lines() if line.get_marker() == "D"] == [len(TASKS)]
    assert "2 per point" in wrangling.FIGURE.caption(runs)
    assert "10 workloads" in wrangling.FIGURE.caption(runs)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        ({"di_buy": 0.8, "ed_hospital": 1.05}, "reproduced"),
        ({"di_buy": 0.95, "ed_hospital": 1.0}, "direction only"),
        ({"di_buy": 0.8, "ed_hospital": 0.5}, "direction only"),
        (dict.fromkeys(TASKS, 1.2), "contradicted"),
    ],
)
def test_the_claim_follows_from_the_tasks(tmp_path: Path, factor: dict[str, float], verdict: str) -> None:
    write_tasks(tmp_path, factor)
    claim = next(claim for claim in read_claims() if claim.id == "C19")
    judgement = judge(claim, JUDGES, setups.gather(tmp_path).setups, "python -m experiments.run")
    assert judgement.verdict == verdict
    assert judgement.finding.measured == pytest.approx(factor["di_buy"])
    assert len(judgement.finding.runs) == 4 * len(TASKS)


def write_answers(
    results_dir: Path, ids: dict[str, list[list[int]]], task: str = "records_em_beer", folder: str = "public/em/Beer"
) -> None:
    for variant in VARIANTS:
        given = ids.get(variant, [[7], [8]])
        write_run(
            results_dir,
            variant,
            experiment=task,
            config={
                "workload.name": task,
                "workload.source": "model",
                "workload.records": {"path": folder},
                "memory_gb": None,
                "budget_ratio": 0.6,
            },
            result={"tokens": {"ids": given, "answers": {"right": 1 + (given[0] == [7]), "of": 2, "examples": 4}}},
        )


def test_answers_are_alike_when_every_token_is(tmp_path: Path) -> None:
    write_answers(tmp_path, {})
    write_answers(tmp_path, {"dual_blade": [[9], [8]]}, task="records_ed_hospital")
    runs = wrangling_records.select(read(tmp_path)).runs
    found = accuracy_by_task(runs)
    assert str(found["records_em_beer"]) == "2 of 2, all alike"
    assert str(found["records_ed_hospital"]) == "1 to 2 of 2, NOT alike"
    labels = [label.get_text() for axes in wrangling_records.plot(runs).axes for label in axes.get_yticklabels()]
    assert {"EM Beer", "ED Hospital", *map(str, found.values())} == set(labels)
    caption = wrangling_records.FIGURE.caption(runs)
    assert "EM Beer 2 of 2, all alike" in caption
    assert "on real records" in caption
    assert "the model itself computes" in caption and "Test GPU" not in caption


def test_made_up_records_are_called_so(tmp_path: Path) -> None:
    write_answers(tmp_path, {}, "records_em_sample", str(CONF / "workload/records/em_sample"))
    runs = wrangling_records.select(read(tmp_path)).runs
    caption = wrangling_records.FIGURE.caption(runs)
    assert "on made-up records" in caption and "real" not in caption
    assert wrangling_records.plot(runs).axes[0].get_yticklabels()[0].get_text() == "EM sample (made up)"
    write_answers(tmp_path, {})
    both = wrangling_records.select(read(tmp_path)).runs
    assert "on made-up and real records" in wrangling_records.FIGURE.caption(both)


def test_runs_without_answers_are_no_records(tmp_path: Path) -> None:
    write_run(tmp_path, "baseline", result={"tokens": {"ids": [[1]], "text": ["a"], "answers": None}})
    write_run(tmp_path, "dual_blade", result={"tokens": None})
    assert wrangling_records.select(read(tmp_path)).runs.empty

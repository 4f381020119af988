"""What the notebooks show: drawn from a run's own files, and a sentence where a run has not what is asked for."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.figures import hit_rate
from analysis.metrics import run_metrics
from analysis.results import kv_io
from analysis.results.documents import ResultsError
from analysis.results.load import Results, load
from analysis.views import lba, residency, timeline
from analysis.views.one_run import one_run
from tests.support.checkout import SAMPLE
from traces.errors import TraceError


@pytest.fixture(scope="module")
def results() -> Results:
    return run_metrics.with_metrics(load(SAMPLE))


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


def test_one_run_is_found_by_what_tells_runs_apart(results: Results) -> None:
    run = one_run(results, "dual_blade", 6.0)
    assert (run["config.variant.name"], run["memory_gb"]) == ("dual_blade", 6.0)
    assert one_run(results, "dual_blade")["memory_gb"] == 2.0
    with pytest.raises(
        ResultsError, match=r"no run of dual_blade at 3.5 GB; there are: .*dual_blade at 2, "
    ) as missing:
        one_run(results, "dual_blade", 3.5)
    assert str(missing.value).count("there are") == 1


def test_hits_by_layer_follow_the_plan(results: Results) -> None:
    """In DUAL-BLADE a layer hits fully or not at all, by the path that the plan gave it."""
    run = one_run(results, "dual_blade", 6.0)
    rates = kv_io.hit_rate_by_layer(kv_io.read(run["folder"])).loc[2]
    plan = json.loads((run["folder"] / "result.json").read_text())["plan"]["layers"]
    assert [rate > 0.99 for rate in rates] == [path == "page_cache" for path in plan]
    assert rates.mean() == pytest.approx(run["decode_hit_rate"], abs=0.01)


def test_the_plan_is_drawn_by_variant(results: Results) -> None:
    runs = hit_rate.select(results).runs
    figure = drawn(residency.layer_paths(runs))
    panels = {axes.get_title(): axes.images[0].get_array() for axes in figure.axes}
    assert list(panels) == ["Baseline", "CachePolicy-Only", "NVMe-direct-Only", "DUAL-BLADE"]
    cached = (panels["DUAL-BLADE"] == 0).sum(axis=0)
    limits = sorted(runs[runs["config.variant.name"] == "dual_blade"]["memory_gb"].unique())
    assert cached.tolist() == [one_run(results, "dual_blade", gb)["result.plan.n1"] for gb in limits]


def test_hits_are_drawn_for_every_iteration(results: Results) -> None:
    run = one_run(results, "baseline", 2.0)
    image = drawn(residency.hits_by_layer(run)).axes[0].images[0].get_array()
    assert image is not None and image.shape == (run["decode_iterations"], 32)


def test_the_timeline_holds_every_transfer_of_the_iteration(results: Results) -> None:
    run = one_run(results, "dual_blade", 6.0)
    operations = kv_io.read(run["folder"])
    chosen = operations[(operations["phase"] == "decode") & (operations["iteration"] == 2)]
    axes = drawn(timeline.decode_timeline(run, 2)).axes[0]
    n_bars = sum(len(bars.get_paths()) for bars in axes.collections)
    assert n_bars == 2 * len(chosen) + chosen["layer"].nunique()
    with pytest.raises(ResultsError, match="decode iteration 99 of"):
        timeline.decode_timeline(run, 99)


def test_compute_begins_when_the_layer_has_arrived() -> None:
    operations = pd.DataFrame(
        {
            "op": ["read", "read", "write", "read"],
            "layer": [0, 0, 0, 1],
            "link_end_ns": [1_000, 3_000, 9_000, 5_000],
        }
    )
    spans = timeline.compute_spans(operations, 2e-6)
    assert spans.to_dict("index") == {
        0: {"start_ns": 3_000, "end_ns": 5_000},
        1: {"start_ns": 5_000, "end_ns": 7_000},
    }


def test_commands_are_those_asked_for_and_lie_in_their_tensors(results: Results) -> None:
    run = one_run(results, "dual_blade", traced=True)
    chosen = lba.commands(run, "decode", 2, "read", layers=[20, 21])
    assert set(chosen["layer"]) == {20, 21} and set(chosen["iteration"]) == {2}
    asked = kv_io.read(run["folder"]).query(
        "phase == 'decode' and iteration == 2 and op == 'read' and layer in [20, 21]"
    )
    assert chosen["bytes"].sum() == pytest.approx(asked["bytes"].sum(), rel=0.01)
    panels = drawn(lba.tensor_beside_device(run, chosen)).axes[:2]
    assert [len(axes.collections[0].get_paths()) for axes in panels] == [len(chosen)] * 2
    assert len(drawn(lba.by_queue(run, chosen)).axes) == chosen["queue"].nunique()
    with pytest.raises(ResultsError, match="holds no read of decode iteration 99"):
        lba.commands(run, "decode", 99)


def test_holes_of_the_device_are_cut_and_order_is_kept() -> None:
    gib, mib = 1 << 30, 1 << 20
    chosen = pd.DataFrame({"offset_bytes": [5 * gib, gib, gib + mib], "bytes": [mib, mib, mib]})
    assert lba.compact(chosen).tolist() == [2 * mib + lba.HOLE_BYTES, 0, mib]


def test_a_run_without_a_trace_says_how_to_get_one(results: Results) -> None:
    with pytest.raises(TraceError, match="trace=block_requests"):
        lba.commands(one_run(results, "dual_blade", 6.0))

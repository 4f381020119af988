"""Damaged results: whatever bytes or values a run's files hold, the rest is read, judged and drawn as before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from analysis.claims.judges import JUDGES
from analysis.claims.verdict import judge, read_claims, to_json
from analysis.figures.registry import FIGURES
from analysis.report import gallery, tables
from analysis.report.__main__ import main as report
from analysis.results import kv_io
from analysis.results.documents import ResultsError
from analysis.results.load import find_runs
from analysis.selection import setups
from tests.support.analysis_results import write_run, write_sweep
from tests.support.checkout import SAMPLE
from tests.support.device_traces import write_traced_run

DOCUMENTS = ("config.yaml", "environment.json", "result.json")
VARIANTS = ("baseline", "dual_blade")
LIMITS_GB = (2.0, 4.0, 6.0)
CLAIMS = read_claims()

# No shrinking: an example is one value in one place, so there is nothing to make smaller.
SETTINGS = settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just(["0.5"]),
    st.just({"name": {"a": []}}),
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sound sweep, one run of which each example damages and puts back."""
    results_dir = tmp_path_factory.mktemp("sweep")
    write_sweep(results_dir, VARIANTS, LIMITS_GB)
    yield results_dir


def use_everything(results_dir: Path) -> tuple[set[str], tuple[str, ...]]:
    """Load, choose, judge and tabulate: the names of the runs that arrived, and the sentences on those that did not."""
    gathered = setups.gather(results_dir)
    for figure in FIGURES.values():
        selection = figure.select(gathered.results)
        if not selection.runs.empty:
            figure.caption(selection.runs)
    to_json(judge(claim, JUDGES, gathered.setups, "") for claim in CLAIMS)
    names = set(map(str, gathered.results.runs.index))
    tables.run_list(gathered, names, results_dir)
    for setup in gathered.setups:
        tables.machine(setup)
        tables.medians(setup)
    return names, gathered.results.skipped


def check_that_only_one_is_lost(results_dir: Path, damaged: Path) -> None:
    names, skipped = use_everything(results_dir)
    lost = damaged.relative_to(results_dir).as_posix()
    assert len(names | {lost}) == len(VARIANTS) * len(LIMITS_GB)
    assert len(skipped) == int(lost not in names)
    assert all(len(text.splitlines()) == 1 and str(damaged) in text for text in skipped)


def paths_of(document: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in a document."""
    for key, value in document.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*prefix, key))


@SETTINGS
@given(data=st.data())
def test_any_value_in_any_place_costs_at_most_its_run(sweep: Path, data: st.DataObject) -> None:
    run_dir = sweep / "default" / "dual_blade-4.0" / "rep-0"
    path = run_dir / data.draw(st.sampled_from(DOCUMENTS))
    before = path.read_text()
    document = json.loads(before)
    place = data.draw(st.sampled_from(list(paths_of(document))))
    section = document
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = data.draw(VALUES)
    try:
        path.write_text(json.dumps(document))
        check_that_only_one_is_lost(sweep, run_dir)
    finally:
        path.write_text(before)


@SETTINGS
@given(data=st.data())
def test_any_damage_to_the_bytes_costs_at_most_its_run(sweep: Path, data: st.DataObject) -> None:
    run_dir = sweep / "default" / "baseline-2.0" / "rep-0"
    path = run_dir / data.draw(st.sampled_from(DOCUMENTS))
    before = path.read_bytes()
    start = data.draw(st.integers(0, len(before)))
    end = data.draw(st.integers(start, len(before)))
    try:
        path.write_bytes(before[:start] + data.draw(st.binary(max_size=40)) + before[end:])
        check_that_only_one_is_lost(sweep, run_dir)
    finally:
        path.write_bytes(before)


def test_a_deeply_nested_document_is_damage(tmp_path: Path) -> None:
    write_run(tmp_path, "baseline", 2.0)
    deep = write_run(tmp_path, "baseline", 4.0)
    (deep / "result.json").write_text('{"a":' * 100_000)
    (deep / "config.yaml").write_text("[" * 5_000)
    names, skipped = use_everything(tmp_path)
    assert len(names) == 1 and len(skipped) == 1


@SETTINGS
@given(data=st.data())
def test_a_damaged_log_is_one_sentence(sample_log: Path, data: st.DataObject) -> None:
    before = sample_log.read_bytes()
    start = data.draw(st.integers(0, len(before)))
    end = data.draw(st.integers(start, min(len(before), start + 500)))
    try:
        sample_log.write_bytes(before[:start] + data.draw(st.binary(max_size=40)) + before[end:])
        kv_io.hit_rate_by_layer(kv_io.read(sample_log.parent))
    except ResultsError as error:
        assert len(str(error).splitlines()) == 1 and sample_log.name in str(error)
    finally:
        sample_log.write_bytes(before)


@pytest.fixture(scope="module")
def sample_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that an engine wrote."""
    source = next(folder for run, folder in find_runs(SAMPLE).items() if run.startswith("default/dual_blade-"))
    return Path(shutil.copy(source / "kv_io.parquet", tmp_path_factory.mktemp("log")))


def test_a_log_without_a_column_or_a_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="does not exist"):
        kv_io.read(tmp_path)
    pq.write_table(pa.table({"phase": ["decode"]}), tmp_path / "kv_io.parquet")
    with pytest.raises(ResultsError, match="is damaged"):
        kv_io.read(tmp_path)


@pytest.mark.parametrize("name", ["device_io.parquet", "kv_io.parquet"])
@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_a_damaged_trace_costs_what_needs_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    monkeypatch.setattr(gallery, "_data_uri", lambda figure: "data:,")  # rendering is what takes the time
    write_sweep(tmp_path / "results", VARIANTS, (*LIMITS_GB, 11.0))
    traced = [write_traced_run(tmp_path / "results", variant) for variant in VARIANTS]
    path = traced[0] / name
    content = path.read_bytes()
    damaged = {
        "cut off": content[: len(content) // 2],
        "overwritten": content[:100] + bytes(len(content) - 700) + content[-600:],
    }
    path.write_bytes(damaged[damage])
    assert report(["--results", str(tmp_path / "results"), "--out", str(tmp_path / "report")]) == 0
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    entries = json.loads((tmp_path / "report" / "claims.json").read_text())
    assert entries["C4"]["verdict"] != "not testable here"
    assert name in entries["C3"]["reason"] and entries["C3"]["verdict"] == "not testable here"

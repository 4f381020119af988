"""`python -m analysis.figures`: what it draws, what it says, when it measures first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import default_sweep
from analysis.drawing import layout
from analysis.figures.__main__ import main
from analysis.figures.registry import FIGURES as ALL_FIGURES
from tests.support.analysis_results import write_run, write_sweep
from tests.support.checkout import CHECKOUT

CURVES = ("thrashing", "e2e_latency", "hit_rate")


@pytest.fixture(autouse=True)
def empty_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are composed but not rendered, which is what takes the time."""
    monkeypatch.setattr(layout, "save", lambda figure, stem, caption: [stem.with_suffix(".png")])


@pytest.fixture
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(results_dir: Path) -> int:
        raise AssertionError(f"a sweep into {results_dir} was started")

    monkeypatch.setattr(default_sweep, "run_default_sweep", refuse)


def fake_harness(body: str) -> None:
    """An `experiments.run` in the current folder, which a child of `python -m` prefers to the real one."""
    Path("experiments").mkdir()
    Path("experiments/__init__.py").touch()
    Path("experiments/run.py").write_text(body)


def test_where_memory_cannot_be_limited_the_default_sweep_runs_in_the_guest(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(default_sweep, "why_not_here", lambda: "memory cannot be limited: no reason")
    monkeypatch.setattr(default_sweep.virtual_machine, "missing_tool", lambda: None)
    fake_harness("import sys; print(sys.argv[1:])")
    main([])
    out, _ = capfd.readouterr()
    assert "in the guest, on an emulated SSD" in out and "memory cannot be limited: no reason" in out
    assert "['+experiment=default_guest']" in out


@pytest.mark.usefixtures("no_sweep")
def test_results_are_drawn_and_named_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path("results"))
    assert main([]) == 0
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if "no results" not in line]
    assert [line.split()[:3] for line in lines] == [
        ["thrashing", "8", "runs"],
        ["e2e_latency", "32", "runs"],
        ["hit_rate", "32", "runs"],
    ]
    assert err == ""
    files = {path.name for path in Path("figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in CURVES for kind in ("pdf", "png", "md")}
    assert all(f"figures/{name}.png" in line for name, line in zip(CURVES, lines, strict=True))


@pytest.mark.usefixtures("unsaved", "no_sweep")
@pytest.mark.parametrize("step", ["select", "plot", "subject"])
def test_a_bug_in_a_figure_costs_that_figure_alone_and_is_told(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(Path("results"), limits_gb=[2.0, 4.0])
    broken: dict[str, Any] = {step: lambda data: int(float("nan"))}
    monkeypatch.setitem(ALL_FIGURES, "thrashing", replace(ALL_FIGURES["thrashing"], **broken))
    assert main([]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines() if " runs " in line] == ["e2e_latency", "hit_rate"]
    assert err.startswith("thrashing is not drawn because of a bug: ValueError: cannot convert float NaN to integer (")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("unsaved", "no_sweep")
def test_a_figure_without_data_names_the_command_that_measures_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path("elsewhere"), variants=["dual_blade"])
    assert main(["--results", "elsewhere", "--out", "drawn"]) == 0
    out, _ = capsys.readouterr()
    assert "python -m experiments.run +experiment=thrashing results_dir=elsewhere" in out.splitlines()[0]
    assert "drawn/thrashing.png" not in out and "drawn/hit_rate.png" in out


@pytest.mark.usefixtures("unsaved", "no_sweep")
def test_failed_and_missing_points_are_told_and_the_rest_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path("results"), limits_gb=[2.0, 4.0])
    write_run(Path("results"), "dual_blade", 6.0, result={"status": "failed", "error": "the disk is full"})
    write_run(Path("results"), "baseline", 6.0)
    assert main([]) == 0
    _, err = capsys.readouterr()
    assert "dual_blade-6.0/rep-0 is left out: the run failed: the disk is full" in err
    assert "incomplete hit_rate: dual_blade has no run at 6 GB" in err


@pytest.mark.usefixtures("unsaved", "no_sweep")
def test_many_sentences_are_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(Path("results"), limits_gb=[2.0, 4.0])
    write_sweep(Path("results"), limits_gb=range(100, 120), variants=["baseline"], result={"status": "failed"})
    assert main([]) == 0
    _, err = capsys.readouterr()
    assert err.count("is left out") == 8 and "12 more" in err


@pytest.mark.parametrize("limits", [[None], [4.0]], ids=["no limit", "one limit"])
def test_runs_that_make_no_curve_are_nothing_to_draw(
    limits: list[float | None], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_harness("print('a sweep')")
    for limit in limits:
        write_run(Path("results"), memory_gb=limit)
    assert main([]) == 1
    out, _ = capfd.readouterr()
    assert "a sweep" in out and out.count("no results") == len(ALL_FIGURES)


@pytest.mark.usefixtures("no_sweep")
@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text("a file"), "is not a folder"),
        (lambda path: (path / "holiday").mkdir(parents=True), "holds no <experiment>/<point>/rep-N/"),
    ],
    ids=["missing", "file", "foreign"],
)
def test_a_wrong_folder_is_one_sentence(make: object, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(Path("wrong"))  # type: ignore[operator]
    assert main(["--results", "wrong"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert cause in err and "--results wrong" in err


@pytest.mark.usefixtures("unsaved")
@pytest.mark.parametrize("arguments", [[], ["--results", "results"], ["--results", "my results, new"]], ids=str)
def test_without_results_the_default_sweep_is_measured_first(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    if "my results, new" in arguments:
        Path("my results, new").mkdir()
    root = CHECKOUT
    fake_harness(
        f"import sys; sys.path.append({str(root)!r})\n"
        "from pathlib import Path\n"
        "from tests.support.analysis_results import write_sweep\n"
        "print('progress', sys.argv[1:])\n"
        "where = [a.partition('=')[2].strip(chr(39)) for a in sys.argv if a.startswith('results_dir=')]\n"
        "write_sweep(Path(where[0] if where else 'results'))\n"
    )
    assert main(arguments) == 0
    out, _ = capfd.readouterr()
    assert "measuring the default sweep" in out
    assert "progress ['+experiment=default'" in out
    assert out.count("runs") == 3


@pytest.mark.usefixtures("unsaved")
def test_a_sweep_with_failed_points_is_drawn_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    write_run(Path("results"), "baseline", 2.0, result={"status": "failed", "error": "no luck"})
    root = CHECKOUT
    fake_harness(
        f"import sys; sys.path.append({str(root)!r})\n"
        "from pathlib import Path\n"
        "from tests.support.analysis_results import write_sweep\n"
        "write_sweep(Path('results'), limits_gb=[4.0, 6.0])\n"
        "sys.exit(3)\n"
    )
    assert main([]) == 0
    out, err = capfd.readouterr()
    assert "status 3" in err and "no luck" in err
    assert out.count("runs") == 3


def test_a_sweep_that_measures_nothing_is_a_failure() -> None:
    fake_harness("raise SystemExit(1)")
    assert main([]) == 1


def test_drawing_needs_neither_torch_nor_the_engine() -> None:
    code = "import sys, analysis.figures.__main__; print([m for m in ('torch', 'dualblade.store') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "[]"

"""Notebooks: they run on the sample results, show figures, hold no logic, and come without outputs."""

from __future__ import annotations

import ast
import base64
from pathlib import Path

import nbformat
import pytest

from analysis import notebooks
from analysis.notebooks import NOTEBOOKS, main
from tests.support.analysis_results import write_sweep
from tests.support.checkout import SAMPLE

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
LOGIC = (ast.For, ast.While, ast.If, ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension, ast.Try, ast.With)


def code_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stripped_and_there_is_no_logic(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    for cell in code_of(notebook):
        assert cell.outputs == [] and cell.execution_count is None
        source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
        assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, LOGIC)], source


def test_all_of_them_run_on_the_sample_and_show_figures(tmp_path: Path) -> None:
    before = {name: (NOTEBOOKS / name).read_bytes() for name in NAMES}
    assert main(["--results", str(SAMPLE), "--out", str(tmp_path)]) == 0
    assert {name: (NOTEBOOKS / name).read_bytes() for name in NAMES} == before
    for name in NAMES:
        shown = [output for cell in code_of(nbformat.read(tmp_path / name, 4)) for output in cell.outputs]
        images = [output.data["image/png"] for output in shown if "image/png" in output.get("data", {})]
        assert len(images) >= 3
        assert all(len(base64.b64decode(image)) > 5000 for image in images)
        assert not [output for output in shown if output.output_type == "error"]
    assert [path.name for path in NOTEBOOKS.iterdir() if path.suffix != ".ipynb"] == []


def test_results_that_lack_traces_end_one_notebook_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "lba_patterns.ipynb").write_bytes((NOTEBOOKS / "lba_patterns.ipynb").read_bytes())
    monkeypatch.setattr(notebooks, "NOTEBOOKS", folder)
    write_sweep(tmp_path / "results", limits_gb=[2.0, 4.0])
    assert main(["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert "there is no traced run of baseline; measure one with trace=block_requests" in out
    assert len(out.splitlines()) == 1 and "Traceback" not in err


def test_without_results_there_is_nothing_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 1
    _, err = capsys.readouterr()
    assert err.count("\n") == 1 and "make figures" in err

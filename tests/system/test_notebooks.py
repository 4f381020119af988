"""Notebooks: they run on the sample results, show figures, hold no logic, and come without outputs."""

from __future__ import annotations

import ast
import base64
from pathlib import Path

import nbformat
import pytest

from analysis.notebooks import NOTEBOOKS, main

SAMPLE = Path(__file__).parents[1] / "data"
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

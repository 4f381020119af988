"""Run the notebooks on a results folder: executed copies in report/notebooks/, the notebooks themselves untouched."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

from analysis.command_errors import MISTAKES, sentence
from analysis.figures.__main__ import check_folder
from analysis.results.documents import ResultsError
from analysis.results.load import DEFAULT_RESULTS, find_runs
from dualblade.errors import DualBladeError

PROJECT = Path(__file__).resolve().parents[1]
NOTEBOOKS = PROJECT / "notebooks"
CELL_TIMEOUT_S = 120
MISSING = ("ResultsError", "TraceError")  # what the views raise then


class NotebookError(DualBladeError):
    """A cell of a notebook failed."""


class MissingDataError(DualBladeError):
    """The results lack what a notebook shows."""


def main(arguments: list[str] | None = None) -> int:
    """Run all; one line per notebook."""
    parser = argparse.ArgumentParser(prog="python -m analysis.notebooks", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, help="folder with results (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report/notebooks"), help="folder for executed copies (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        check_folder(options.results)
        if not find_runs(options.results):
            raise ResultsError(f"{options.results} holds no results; run make figures first, or try RESULTS=tests/data")
        options.out.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
            print(_run_if_possible(notebook, options.results, options.out), flush=True)
    except MISTAKES as error:
        print(sentence(error), file=sys.stderr)
        return 1
    return 0


def _run_if_possible(notebook: Path, results_dir: Path, out_dir: Path) -> str:
    """The copy's path; where the results lack what the notebook shows, that in a sentence."""
    try:
        return str(run(notebook, results_dir, out_dir))
    except MissingDataError as error:
        return f"{out_dir / notebook.name}, as far as the results go: {error}"


def run(notebook: Path, results_dir: Path, out_dir: Path) -> Path:
    """Execute a notebook with RESULTS set; the path of the copy that holds its outputs.

    Raises:
        NotebookError: a cell failed or took too long; the copy shows how far it came.
        MissingDataError: the results hold nothing of what the notebook shows.
    """
    document, copy = nbformat.read(notebook, as_version=4), out_dir / notebook.name
    resources = {"metadata": {"path": str(notebook.parent)}}
    with tempfile.TemporaryDirectory() as sockets:  # of this user alone, where a port would be open to all
        kernel = KernelManager(transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(document, km=kernel, timeout=CELL_TIMEOUT_S, resources=resources)
        try:
            client.execute(env=_environment(results_dir) | {"TMPDIR": sockets})
        except CellTimeoutError:
            raise NotebookError(f"a cell of {notebook.name} took more than {CELL_TIMEOUT_S} s; see {copy}") from None
        except CellExecutionError as error:
            if error.ename in MISSING:
                raise MissingDataError(error.evalue) from None
            raise NotebookError(f"{notebook.name}: {error.ename}: {error.evalue}") from None
        finally:
            kernel.shutdown_kernel(now=True)
            nbformat.write(document, copy)
    return copy


def _environment(results_dir: Path) -> dict[str, str]:
    """Of the kernel, which imports this checkout wherever it runs."""
    paths = [str(PROJECT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"RESULTS": str(results_dir.resolve()), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


if __name__ == "__main__":
    sys.exit(main())

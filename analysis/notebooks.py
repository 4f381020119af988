"""Run the notebooks on a results folder: executed copies in report/notebooks/, the notebooks themselves untouched."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

from analysis.command_line import EXPECTED_ERRORS, check_folder, message, parse_folders
from analysis.results.documents import ResultsError
from analysis.results.load import find_runs
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
    """Run all notebooks, and print one line for each."""
    options = parse_folders("analysis.notebooks", __doc__, "report/notebooks", "executed copies", arguments)
    try:
        check_folder(options.results)
        if not find_runs(options.results):
            raise ResultsError(f"{options.results} holds no results; run make figures first, or try RESULTS=tests/data")
        options.out.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
            print(_run_if_possible(notebook, options.results, options.out), flush=True)
    except EXPECTED_ERRORS as error:
        print(message(error), file=sys.stderr)
        return 1
    return 0


def _run_if_possible(notebook: Path, results_dir: Path, out_dir: Path) -> str:
    """Run a notebook, and return its copy's path, with a sentence if the results lack what it shows."""
    try:
        return str(run(notebook, results_dir, out_dir))
    except MissingDataError as error:
        return f"{out_dir / notebook.name}, as far as the results go: {error}"


def run(notebook: Path, results_dir: Path, out_dir: Path) -> Path:
    """Execute a notebook with RESULTS set, and return the path of the copy that holds its outputs.

    Raises:
        NotebookError: a cell failed or took too long; the copy shows how far it came.
        MissingDataError: the results hold nothing of what the notebook shows.
    """
    document, copy = nbformat.read(notebook, as_version=4), out_dir / notebook.name
    resources = {"metadata": {"path": str(notebook.parent)}}
    with tempfile.TemporaryDirectory() as sockets:  # only this user can open them; a port is open to all
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
    """The environment of the kernel, which imports this checkout wherever it runs."""
    paths = [str(PROJECT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"RESULTS": str(results_dir.resolve()), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


if __name__ == "__main__":
    sys.exit(main())

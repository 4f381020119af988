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

from analysis.figures.__main__ import check_folder
from analysis.load import DEFAULT_RESULTS
from dualblade.errors import DualBladeError

PROJECT = Path(__file__).resolve().parents[1]
NOTEBOOKS = PROJECT / "notebooks"
CELL_TIMEOUT_S = 120


class NotebookError(DualBladeError):
    """A cell of a notebook failed."""


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
        options.out.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
            print(run(notebook, options.results, options.out), flush=True)
    except DualBladeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run(notebook: Path, results_dir: Path, out_dir: Path) -> Path:
    """Execute a notebook with RESULTS set; the path of the copy that holds its outputs.

    Raises:
        NotebookError: a cell failed or took too long; the copy shows how far it came.
    """
    document, copy = nbformat.read(notebook, as_version=4), out_dir / notebook.name
    resources = {"metadata": {"path": str(notebook.parent)}}
    with tempfile.TemporaryDirectory() as sockets:  # of this user alone, where a port would be open to all
        kernel = KernelManager(transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(document, km=kernel, timeout=CELL_TIMEOUT_S, resources=resources)
        try:
            client.execute(env=_environment(results_dir))
        except CellTimeoutError:
            raise NotebookError(f"a cell of {notebook.name} took more than {CELL_TIMEOUT_S} s; see {copy}") from None
        except CellExecutionError as error:
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

"""Measure missing results: the harness's command lines, and its default sweep as a child process."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from analysis.results.documents import ResultsError
from analysis.results.load import DEFAULT_RESULTS
from experiments.guest import virtual_machine
from experiments.machine.cgroup_tree import why_not_here
from experiments.processes.signals import run_python

DEFAULT, GUEST = "default", "default_guest"


def arguments(experiment: str, results_dir: Path) -> list[str]:
    """Arguments of `python` that measure an experiment into a folder: the default one where results are an archive."""
    overrides = [f"+experiment={experiment}"]
    if results_dir != DEFAULT_RESULTS and not results_dir.is_file():
        overrides.append(f"results_dir={_quote(results_dir.as_posix())}")
    return ["-m", "experiments.run", *overrides]


def command(experiment: str, results_dir: Path) -> str:
    """The command line for a shell that measures an experiment into a folder."""
    return shlex.join(["python", *arguments(experiment, results_dir)])


def default_experiment() -> tuple[str, str | None]:
    """The default sweep that this machine can measure, and the reason if it is not the usual one."""
    reason = why_not_here()
    return (GUEST, reason) if reason and virtual_machine.missing_tool() is None else (DEFAULT, None)


def measure(results_dir: Path) -> None:
    """Run the default sweep. If points of it fail, the others can be drawn.

    Raises:
        ResultsError: results are an archive, which a sweep cannot be added to.
    """
    if results_dir.is_file():
        raise ResultsError(f"{results_dir} holds nothing to draw; name an archive of results that a sweep wrote")
    print(f"{results_dir} holds nothing to draw yet: measuring the default sweep first", flush=True)
    status = run_default_sweep(results_dir)
    if status:
        print(f"the sweep ended with status {status}; drawing what there is", file=sys.stderr)


def run_default_sweep(results_dir: Path) -> int:
    """Run the default sweep with its progress on our output, and return its exit status.

    Raises:
        SystemExit: this process was asked to end, and the sweep has restored the machine's settings.
    """
    experiment, reason = default_experiment()
    if reason:
        print(f"in the guest, on an emulated SSD and at its scale, since here {reason}", flush=True)
    return run_python(arguments(experiment, results_dir))


def _quote(path: str) -> str:
    """A value in Hydra's override grammar, where an unquoted comma or equals sign has a meaning."""
    plain = path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    return path if plain else "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""Measuring what is missing: the harness's command lines, and running its default sweep as a child."""

from __future__ import annotations

import shlex
from pathlib import Path

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
    """The same as a line for a shell."""
    return shlex.join(["python", *arguments(experiment, results_dir)])


def default_experiment() -> tuple[str, str | None]:
    """The default sweep that this machine can measure, and why it is not the usual one."""
    reason = why_not_here()
    return (GUEST, reason) if reason and virtual_machine.missing_tool() is None else (DEFAULT, None)


def run_default_sweep(results_dir: Path) -> int:
    """Run the default sweep, its progress on our own output; its exit status.

    Raises:
        SystemExit: we were asked to end, and the sweep has put the machine's settings back.
    """
    experiment, reason = default_experiment()
    if reason:
        print(f"in the guest, on an emulated SSD and at its scale, since here {reason}", flush=True)
    return run_python(arguments(experiment, results_dir))


def _quote(path: str) -> str:
    """A value in Hydra's override grammar, where an unquoted comma or equals sign has a meaning."""
    plain = path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    return path if plain else "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"

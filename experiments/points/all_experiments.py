"""`+experiment=all`: the experiments of every figure at reduced size, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from dualblade.errors import ConfigurationError
from experiments.processes.engine import PROJECT
from experiments.processes.signals import run_python

FLAG = "+experiment=all"
FILE = PROJECT / "conf/experiment/all.yaml"
MULTIRUN = ("-m", "--multirun")


def parts(overrides: Sequence[str]) -> list[list[str]]:
    """Overrides of each experiment that `+experiment=all` among the overrides stands for; none without it.

    Raises:
        ConfigurationError: no such testbed, or a sweep over several.
    """
    if FLAG not in overrides:
        return []
    others = [override for override in overrides if override not in (FLAG, *MULTIRUN)]
    testbed = next((other.partition("=")[2] for other in reversed(others) if other.startswith("testbed=")), "local")
    experiments: dict[str, dict[str, list[str]]] = yaml.safe_load(FILE.read_text())
    if testbed not in experiments:
        raise ConfigurationError(f"testbed={testbed} cannot be used with {FLAG}; use one of {', '.join(experiments)}")
    return [[f"+experiment={name}", *reduced, *others] for name, reduced in experiments[testbed].items()]


def run_all(overrides: Sequence[str]) -> int:
    """Run them as `experiments.run` would; the worst of their exit statuses.

    Raises:
        SystemExit: we were asked to end; see `run_python`.
    """
    worst = 0
    for part in parts(overrides):
        print(f"{part[0].partition('=')[2]}:", flush=True)
        worst = max(worst, run_python(["-m", "experiments.run", MULTIRUN[0], *part]))
    return worst

"""`+experiment=all`: the experiments of every figure at reduced size, one after the other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

import yaml

from experiments.engine import PROJECT

FLAG = "+experiment=all"
FILE = PROJECT / "conf/experiment/all.yaml"
MULTIRUN = ("-m", "--multirun")
INTERRUPTED = 130


def parts(overrides: Sequence[str]) -> list[list[str]]:
    """Overrides of each experiment that `+experiment=all` among the overrides stands for; none without it."""
    if FLAG not in overrides:
        return []
    others = [override for override in overrides if override not in (FLAG, *MULTIRUN)]
    testbed = next((other.partition("=")[2] for other in reversed(others) if other.startswith("testbed=")), "local")
    experiments: dict[str, list[str]] = yaml.safe_load(FILE.read_text())[testbed]
    return [[f"+experiment={name}", *reduced, *others] for name, reduced in experiments.items()]


def run_all(overrides: Sequence[str]) -> int:
    """Run them as `experiments.run` would; the worst of their exit statuses, or 130 at once after an interrupt."""
    worst = 0
    for part in parts(overrides):
        print(f"{part[0].partition('=')[2]}:", flush=True)
        status = _run(part)
        if status == INTERRUPTED:
            return INTERRUPTED
        worst = max(worst, status)
    return worst


def _run(part: list[str]) -> int:
    """A signal that reaches this process only is passed on, and the child is given the time to tidy up."""
    child = subprocess.Popen([sys.executable, "-m", "experiments.run", MULTIRUN[0], *part])
    try:
        return child.wait()
    except BaseException as error:
        child.send_signal(signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        child.wait()
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        raise

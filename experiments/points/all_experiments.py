"""`+experiment=all`: the experiments of every figure at reduced size, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from dualblade.errors import ConfigurationError
from experiments.processes.engine import PROJECT

ALL = "+experiment=all"
FILE = PROJECT / "conf/experiment/all.yaml"


def parts(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Overrides of each experiment that `+experiment=all` stands for, by name; without it, all overrides as "".

    Raises:
        ConfigurationError: no such testbed, or a sweep over several.
    """
    if ALL not in overrides:
        return {"": list(overrides)}
    others = [override for override in overrides if override != ALL]
    testbed = next((other.partition("=")[2] for other in reversed(others) if other.startswith("testbed=")), "local")
    experiments: dict[str, dict[str, list[str]]] = yaml.safe_load(FILE.read_text())
    if testbed not in experiments:
        raise ConfigurationError(f"testbed={testbed} cannot be used with {ALL}; use one of {', '.join(experiments)}")
    return {name: [f"+experiment={name}", *reduced, *others] for name, reduced in experiments[testbed].items()}

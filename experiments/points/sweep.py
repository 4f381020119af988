"""Which points a Hydra multirun has: composed here for counting and for the status, run by Hydra itself."""

from __future__ import annotations

import copy
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.points import all_experiments
from experiments.points.io_point import available
from experiments.processes.engine import PROJECT

CONF = PROJECT / "conf"


def register_resolvers() -> None:
    """`${package_file:PACKAGE,NAME}`: a data file of an installed package, or null.

    `${io_paths:BACKEND}`: the I/O paths that a storage of this backend has, as a sweep over them.
    """
    OmegaConf.register_new_resolver("package_file", _package_file, replace=True)
    OmegaConf.register_new_resolver("io_paths", lambda backend: ",".join(available(backend)), replace=True)


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain data, without Hydra's own section."""
    return {str(key): _plain(value) for key, value in config.items() if key != "hydra"}


def in_rounds(words: Sequence[str]) -> list[str]:
    """Words of a command line with its repetitions first, which is Hydra's outermost loop.

    So a sweep measures every point once before any point again, and a machine that drifts meets all of them alike.
    """
    repetitions = [word for word in words if word.startswith("repetition=")]
    others = [word for word in words if word not in repetitions]
    first = next((number for number, word in enumerate(others) if "=" in word and word[0] != "-"), len(others))
    return [*others[:first], *repetitions, *others[first:]]


def count_points(config: DictConfig) -> int:
    """Points of the multirun whose composed configuration this is."""
    return len(_combinations(config))


def compose_points(overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations that `experiments.run -m OVERRIDES` would run, in its order."""
    if parts := all_experiments.parts(overrides):
        return [config for part in parts for config in compose_points(part)]
    register_resolvers()
    composed = functools.cache(lambda *choices: copy.deepcopy(_composed(*choices)))
    fixed = [override for override in overrides if not _parse(override).is_sweep_override()]
    choices, values = _split(fixed)
    config = _set(composed(*choices), values)
    if config.hydra.mode != RunMode.MULTIRUN and len(fixed) == len(overrides):
        return [plain(config)]
    config.hydra.overrides.task = in_rounds(overrides)
    return [plain(_set(composed(*choices), values)) for choices, values in map(_split, _combinations(config))]


def _combinations(config: DictConfig) -> list[list[str]]:
    """Overrides of each point, as Hydra's own sweeper makes them: later arguments take the place of earlier ones."""
    swept = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    overrides = OverridesParser.create().parse_overrides([*swept, *config.hydra.overrides.task])
    (points,) = BasicSweeper.split_arguments(overrides, None)
    return points


def _plain(value: Any) -> Any:
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)


@functools.cache
def _composed(*choices: str) -> DictConfig:
    """What Hydra composes of a choice of configuration files, its own section included; takes 70 ms."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(choices), return_hydra_config=True)


def _split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """What Hydra has to compose, which are choices of files and its own settings, and values that are set on top."""
    values = [override for override in overrides if _is_value(override.partition("=")[0])]
    return [override for override in overrides if override not in values], values


def _is_value(key: str) -> bool:
    return not (set(key) & set("+~@") or key.startswith("hydra") or (CONF / key).is_dir())


def _set(config: DictConfig, values: Sequence[str]) -> DictConfig:
    """In place: a copy takes longer than all the rest, and every point of a sweep sets the same keys."""
    for override in map(_parse, values):
        OmegaConf.update(config, override.key_or_group, override.value())
    return config


@functools.cache
def _parse(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


def _package_file(package: str, name: str) -> str | None:
    """Found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(name)
    return str(path) if path.exists() else None

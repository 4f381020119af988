"""The points of a sweep: the overrides of each, and the configuration that Hydra composes of them."""

from __future__ import annotations

import copy
import functools
import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dualblade.errors import ConfigurationError
from experiments.points import all_experiments
from experiments.points.io_point import available
from experiments.processes.engine import PROJECT

CONF = PROJECT / "conf"


class Sweep:
    """A list of points, each the overrides that make it. Repetition is the outermost loop.

    So every point is measured once before any is measured again, and a machine that drifts meets all of them alike.
    """

    def __init__(self, overrides: Sequence[str], *, multirun: bool = True) -> None:
        """Find the points; without `multirun`, several are allowed only if the experiment says so.

        Raises:
            HydraException, OmegaConfBaseException: a choice or a setting is not known.
            ConfigurationError: a sweep without end.
        """
        register_resolvers()
        self._composed = functools.cache(lambda *choices: copy.deepcopy(_composed(*choices)))
        self.points = self._find(overrides, multirun)
        for point in self.points:
            self._configure(point)

    def config(self, point: Sequence[str]) -> dict[str, Any]:
        """The configuration of a point as plain data, without Hydra's own section.

        Raises:
            OmegaConfBaseException: a setting has no value, or one that cannot be found.
        """
        config = self._configure(point)
        return {str(key): _plain(value) for key, value in config.items() if key != "hydra"}

    def _find(self, overrides: Sequence[str], multirun: bool) -> list[list[str]]:
        config = self._configure([word for word in overrides if not _parse(word).is_sweep_override()])
        if not multirun and config.hydra.mode != RunMode.MULTIRUN:
            _composed(*overrides)  # Hydra refuses several values of a setting
            return [list(overrides)]
        swept = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
        values = {}
        for override in map(_parse, [*swept, *overrides]):
            values[override.get_key_element()] = _values(override)
        rounds = {key: values.pop(key) for key in ["repetition"] if key in values}
        return [list(point) for point in itertools.product(*rounds.values(), *values.values())]

    def _configure(self, overrides: Sequence[str]) -> DictConfig:
        """Hydra's configuration of the choices with the values set in place: a copy takes longer than all the rest.

        Every point of a sweep sets the same keys, so the next one overwrites what this one has set.
        """
        values = [override for override in overrides if _is_value(override.partition("=")[0])]
        config = self._composed(*(override for override in overrides if override not in values))
        for override in map(_parse, values):
            OmegaConf.update(config, override.key_or_group, override.value())
        return config


def compose_points(overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations that `experiments.run -m OVERRIDES` measures, in its order."""
    sweeps = map(Sweep, all_experiments.parts(overrides).values())
    return [sweep.config(point) for sweep in sweeps for point in sweep.points]


def register_resolvers() -> None:
    """Make known what the configuration files call.

    `${package_file:PACKAGE,NAME}` is a data file of an installed package, or null. `${io_paths:BACKEND}` is a sweep
    over the I/O paths that a storage of this backend has.
    """
    OmegaConf.register_new_resolver("package_file", _package_file, replace=True)
    OmegaConf.register_new_resolver("io_paths", lambda backend: ",".join(available(backend)), replace=True)


@functools.cache
def _composed(*choices: str) -> DictConfig:
    """Return what Hydra composes from a choice of configuration files, with its own section; it takes 70 ms."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(choices), return_hydra_config=True)


@functools.cache
def _parse(override: str) -> Override:
    (parsed,) = _parser().parse_overrides([override])
    return parsed


@functools.cache
def _parser() -> OverridesParser:
    """The grammar of overrides, with Hydra's list of files for `glob`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OverridesParser.create(GlobalHydra.instance().config_loader())


def _values(override: Override) -> list[str]:
    """One override for each value that this one sweeps over."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise ConfigurationError(f"{override.input_line} has no list of values; give values, or use range or choice")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _is_value(key: str) -> bool:
    """Whether an override sets a value, and chooses no file and sets nothing of Hydra's."""
    return not (set(key) & set("+~@") or key.startswith("hydra") or (CONF / key).is_dir())


def _plain(value: Any) -> Any:
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)


def _package_file(package: str, name: str) -> str | None:
    """Found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(name)
    return str(path) if path.exists() else None

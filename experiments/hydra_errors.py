"""One sentence for each error of Hydra and OmegaConf."""

from __future__ import annotations

import difflib
from collections import defaultdict
from typing import Any

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from experiments.points.sweep import CONF

# Hydra raises these while it composes; ValueError is for a choice that is a number.
COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, ValueError)


def error_sentence(error: Exception) -> str:
    """Say on one line what is wrong and what to write instead."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        return _unknown_option(error.missing_cfg_file, list(error.options))
    if isinstance(cause, MissingMandatoryValue):
        return f"{cause.full_key} has no value; give it one, as in {cause.full_key}=VALUE"
    if isinstance(cause, OmegaConfBaseException) and "not in struct" in str(cause):
        return _unknown_setting(str(cause.full_key), cause.parent_node)
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _unknown_option(missing: str, options: list[str]) -> str:
    group, _, name = missing.rpartition("/")
    return f"{group}={name} is not known; use one of {', '.join(sorted(options))}"


def _unknown_setting(full_key: str, parent: object) -> str:
    section, _, name = full_key.rpartition(".")
    settings = parent if isinstance(parent, DictConfig) else DictConfig({})
    known = [str(key) for key in settings]
    nested = [f"{key}.{name}" for key in known if _holds(settings.get(key), [name])]
    near = [".".join(filter(None, [section, key])) for key in difflib.get_close_matches(name, known, n=1)]
    if choices := _choices_with(full_key):
        return f"{full_key} is not a setting here; it belongs to {choices}"
    if guesses := nested or near:
        return f"{full_key} is not a setting; did you mean {' or '.join(guesses)}?"
    return f"{full_key} is not a setting; " + (f"known are {', '.join(known)}" if known else f"nor is {section}")


def _choices_with(full_key: str) -> str:
    """Name the choices whose files have the setting, as in "trace=block_latency or block_requests"."""
    names = defaultdict(list)
    for path in sorted(CONF.glob("*/*.yaml")):
        text, group = path.read_text(), path.parent.name
        content = yaml.safe_load(text)
        if _holds(content if "@package _global_" in text else {group: content}, full_key.split(".")):
            names["+experiment" if group == "experiment" else group].append(path.stem)
    return "; ".join(f"{group}={' or '.join(choices)}" for group, choices in names.items())


def _holds(content: Any, keys: list[str]) -> bool:
    """Whether there is a value at these nested keys."""
    for key in keys:
        if not isinstance(content, dict | DictConfig) or key not in content:
            return False
        content = content[key]
    return True

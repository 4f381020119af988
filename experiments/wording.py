"""Hydra's and OmegaConf's complaints, in one sentence each."""

from __future__ import annotations

import difflib

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

# What Hydra raises while it composes; a ValueError for a choice that is a number.
COMPLAINTS = (HydraException, OmegaConfBaseException, ValueError)


def sentence(error: Exception) -> str:
    """What is wrong and what to write instead, on one line."""
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
    known = [str(key) for key in parent] if isinstance(parent, DictConfig) else []
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {'.'.join(filter(None, [section, near[0]]))}?" if near else f"known are {', '.join(known)}"
    return f"{full_key} is not a setting; {hint}"

"""Sections of a configuration, read into their dataclasses; an error is one sentence that names the setting.

Own code, since it imports in 13 ms (msgspec: 20 ms, pydantic with one model: 450 ms) and names what was meant.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from dualblade.errors import ConfigurationError

T = TypeVar("T")

MAX_NUMBER = 1e18  # no setting needs more, and what is computed from it stays finite


def read_section(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """Make a section's dataclass from plain data, as YAML or JSON give it.

    `where` is the prefix of its settings' names, such as "storage."; a nested section adds its own name.

    Raises:
        ConfigurationError: a setting is missing, unknown or of the wrong type, or the dataclass itself refuses a value.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
            raise ConfigurationError(f"{where}{key} is not a setting; {hint}")
    for name, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise ConfigurationError(f"{where}{name} is missing from the configuration")
    return cls(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in data.items()})


def require(holds: bool, setting: str, allowed: str) -> None:
    """Check a condition that a type cannot express. `setting` is name=value, `allowed` is what to give instead.

    Raises:
        ConfigurationError: the condition does not hold.
    """
    if not holds:
        raise ConfigurationError(f"{setting} cannot be used; give {allowed}")


def require_within(value: float, bounds: tuple[float, float], setting: str) -> None:
    """Check that a number lies within `bounds`, both included.

    Raises:
        ConfigurationError: it is outside them, or nan.
    """
    least, most = bounds
    require(least <= value <= most, f"{setting}={value}", f"{least} to {most}")


def fits(hint: Any, value: Any) -> bool:
    """Return whether a value is of a plain type.

    A whole number is accepted as a float. bool, nan and values beyond MAX_NUMBER are rejected as numbers.
    """
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against a field's type: mappings become their dataclass, lists tuples, whole numbers floats."""
    if isinstance(value, float):
        require(fits(float, value), f"{where}={value}", f"a finite number, at most {MAX_NUMBER:g}")
    if isinstance(value, str):
        require("\0" not in value, f"{where}={value!r}", "text without NUL, which ends names")
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_option(hint, value, where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}={value!r} is not a section; expected a mapping of its settings")
        return read_section(typing.cast(type, hint), value, f"{where}.")
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigurationError(f"{where}={value!r} is not a list; give one, as in {where}=[1,2]")
        return tuple(_convert(typing.get_args(hint)[0], item, f"{where}[{n}]") for n, item in enumerate(value))
    if origin is Literal:
        if value not in typing.get_args(hint):
            allowed = ", ".join(map(str, typing.get_args(hint)))
            raise ConfigurationError(f"{where}={value!r} is not known; use one of {allowed}")
        return value
    if not fits(hint, value):
        raise ConfigurationError(f"{where}={value!r} has the wrong type; expected {hint.__name__}")
    return float(value) if hint is float else value


def _convert_option(hint: Any, value: Any, where: str) -> Any:
    """Convert `value` to the first of a union's types that it fits."""
    options = typing.get_args(hint)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is not type(None) and (dataclasses.is_dataclass(option) or fits(option, value)):
            return _convert(option, value, where)
    raise ConfigurationError(f"{where}={value!r} has the wrong type; expected {hint}")

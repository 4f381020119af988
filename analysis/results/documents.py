"""The three documents of a run, read and checked: config.yaml, environment.json, result.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from analysis.results.fields import OPTIONAL, PARTS, REQUIRED, REQUIRED_OF_CELL, REQUIRED_OF_IO, Kind
from dualblade.errors import DualBladeError
from dualblade.run.result_schema import IO_PATHS_KIND, SCHEMA_VERSION
from dualblade.run.run_files import RunFile

SHOWN_CHARS = 80
MAX_UNEXPLAINED = 0.02  # of a phase's wall time, by which the sum of its parts may differ

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ResultsError(DualBladeError):
    """A results folder, or one run in it, cannot be used."""


def read_run(run_dir: Path) -> dict[str, Any]:
    """Read the three documents of a run and check them.

    Raises:
        ResultsError: the run failed, is of another schema, or a file is missing or damaged.
    """
    result = _read(run_dir / RunFile.RESULT)
    if result.get("schema") != SCHEMA_VERSION:
        raise ResultsError(f"result.json has schema {result.get('schema')!r}, and this version reads {SCHEMA_VERSION}")
    if result.get("status") != "done":
        raise ResultsError(f"the run {result.get('status')}: {result.get('error')}; start its sweep again to retry it")
    run = {
        "config": _read(run_dir / RunFile.CONFIG),
        "environment": _read(run_dir / RunFile.ENVIRONMENT),
        "result": result,
    }
    for name, expected in (REQUIRED_OF_IO if is_io(result) else REQUIRED).items():
        _check(name, lookup(run, name), expected)
    for name, expected in OPTIONAL.items():
        if (value := lookup(run, name)) is not None:
            _check(name, value, expected)
    (_check_cells if is_io(result) else _check_iterations)(result)
    for phase in ("prefill", "decode"):
        _check_parts(phase, lookup(result, f"phases.{phase}"))
    return run


def is_io(result: Mapping[str, Any]) -> bool:
    """Return whether the run measured an I/O path by fio, without KV."""
    return result.get("kind") == IO_PATHS_KIND


def lookup(document: Mapping[str, Any], name: str) -> Any:
    """Return the value at a dotted name; None if there is none."""
    value: Any = document
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _check_cells(result: dict[str, Any]) -> None:
    for cell in result["cells"]:
        for name, expected in REQUIRED_OF_CELL.items():
            _check(f"result.cells.{name}", lookup(cell, name), expected)


def _check_iterations(result: dict[str, Any]) -> None:
    latencies, hit_rates = result["decode_s"], result["hit_rate"]["decode_per_iteration"]
    if len(latencies) != len(hit_rates):
        raise ResultsError(f"result.json has {len(latencies)} decode latencies and {len(hit_rates)} hit rates")


def _check_parts(phase: str, seconds: Any) -> None:
    """Compare the sum of a phase's parts with its wall time, if all were recorded."""
    wall_s, *parts_s = (lookup(seconds, name) for name in ("wall_s", *PARTS))
    if None in (wall_s, *parts_s):
        return
    if abs(sum(parts_s) - wall_s) > MAX_UNEXPLAINED * wall_s:
        raise ResultsError(
            f"phases.{phase} in result.json has parts of {sum(parts_s):.6g} s in all, and a wall time of "
            f"{wall_s:.6g} s; measure it again"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, _YamlLoader)
    except FileNotFoundError:
        raise ResultsError(f"it holds no {path.name}, so the run is not complete") from None
    except OSError as error:
        raise ResultsError(f"{path.name} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ResultsError(f"{path.name} is damaged ({' '.join(str(error).split())}); delete the folder") from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path.name} holds {type(content).__name__}, expected a mapping")
    return content


def _check(name: str, value: Any, expected: Kind) -> None:
    if not expected.fits(value):
        source, _, field = name.partition(".")
        file = RunFile.CONFIG if source == "config" else f"{source}.json"
        raise ResultsError(f"{field} in {file} is {_shown(value)}, expected {expected.text}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."

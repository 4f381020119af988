"""conf/README.md describes every group, choice and key of the configuration, with its default."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.points.sweep import CONF

PAGE = (CONF / "README.md").read_text()
GROUPS = sorted(folder.name for folder in CONF.iterdir() if list(folder.glob("*.yaml")))
SECTION = re.compile(r"^### ([\w.]+) \(\+?(\w+)=(\w+)\)$")
ROW = re.compile(r"^\| `([\w.]+)` \| (?:`(.*?)`|see below) \|[^|]*\|[^|]+\|$")


@functools.cache
def settings(file: Path) -> dict[str, Any]:
    """What a file of conf/ sets, over the files that it builds on, by dotted key; a section also as a whole."""
    text = file.read_text()
    content = yaml.safe_load(text)
    names = [name for name in content.pop("defaults", []) if isinstance(name, str) and name != "_self_"]
    below = {} if file.parent == CONF else {k: v for n in names for k, v in settings(file.with_stem(n)).items()}
    content.pop("hydra", None)
    if file.parent != CONF and "@package _global_" not in text:
        content = {file.parent.name: content}
    return below | dict(leaves(content))


def leaves(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def described() -> dict[str, tuple[str, str]]:
    """Default of each key on the page, and the file that it is of; `see below` is "" there."""
    found: dict[str, tuple[str, str]] = {}
    file = "config.yaml"
    for line in PAGE[PAGE.index("## Keys") :].splitlines():
        if section := SECTION.match(line):
            file = f"{section[2]}/{section[3]}.yaml"
        elif row := ROW.match(line):
            assert row[1] not in found, row[1]
            found[row[1]] = (row[2] or "", file)
    return found


def test_every_key_is_described_and_every_described_key_exists() -> None:
    files = [CONF / "config.yaml", *(path for path in CONF.glob("*/*.yaml") if path.stem != "all")]
    assert set(described()) == {key for file in files for key in settings(file)}


def test_every_default_is_the_one_of_the_files() -> None:
    for key, (default, file) in described().items():
        values = settings(CONF / "config.yaml") | settings(CONF / file)
        if default:
            assert yaml.safe_load(default) == values[key], key
        else:
            assert any(name.startswith(f"{key}.") for name in values), key


def test_a_group_is_described_by_its_default_choice() -> None:
    content = yaml.safe_load((CONF / "config.yaml").read_text())
    defaults = {group: choice for entry in content["defaults"] if entry != "_self_" for group, choice in entry.items()}
    for group in ("variant", "model", "workload", "storage", "device"):
        assert f"### {group} ({group}={defaults[group]})" in PAGE


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_is_named_and_every_named_choice_exists(group: str) -> None:
    text = PAGE[PAGE.index(f"\n### {group}\n") :].split("\n#")[1]
    choices = {path.stem for path in (CONF / group).glob("*.yaml")}
    names = set(re.findall(r"`(\w+)`", text))
    assert names >= choices
    other = {path.stem for folder in GROUPS for path in (CONF / folder).glob("*.yaml")}
    assert names - choices <= other

"""A run's configuration: what is wrong with it is said in one sentence that names the field."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from dualblade.config import RunConfig
from dualblade.errors import ConfigurationError

GOOD: dict[str, Any] = {
    "variant": {"name": "dual_blade", "knob": "budget", "overflow": "direct"},
    "model": {
        "name": "opt_6_7b",
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 32,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "mlp_matrices": 2,
    },
    "workload": {"name": "paper", "batch_size": 32, "prompt_tokens": 512, "generated_tokens": 32},
    "storage": {"name": "file", "directory": "kv"},
    "device": {"name": "host", "gpu": None},
    "scale": 8,
    "memory_gb": 4,
}


def changed(path: str, value: object) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    *sections, key = path.split(".")
    section = data
    for name in sections:
        section = section[name]
    section[key] = value
    return data


def test_a_point_is_the_papers_workload_over_its_scale() -> None:
    config = RunConfig.from_mapping(GOOD)
    assert config.batch_size == 4
    assert config.iterations == 31
    assert config.geometry().working_set_bytes * 8 == 543 * 32 * 524_288
    assert config.model.layer_parameters == 12 * 4096**2


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("scale", 5, ["scale=5", "32", "1, 2, 4, 8, 16, 32"]),
        ("scale", 0, ["scale=0"]),
        ("decode_iterations", 32, ["decode_iterations=32", "1..31"]),
        ("variant.overflow", "drop", ["variant.overflow='drop'", "leave, evict, direct"]),
        ("variant.slak", 0.1, ["variant.slak", "slack"]),
        ("storage.queue_depth", "deep", ["storage.queue_depth='deep'", "int"]),
        ("storage.checksum", 1, ["storage.checksum=1", "bool"]),
        ("device.gpu", 3, ["device.gpu=3"]),
        ("storage.queue_depth", 0, ["storage.queue_depth=0", "1 to 4096"]),
        ("storage.chunk_bytes", 1000, ["storage.chunk_bytes=1000", "multiple of lba_bytes=4096"]),
        ("storage.lba_bytes", 1000, ["storage.lba_bytes=1000", "power of two"]),
        ("storage.timeout_s", 0, ["storage.timeout_s=0", "more than 0"]),
        ("storage.first_lba", -1, ["storage.first_lba=-1"]),
        ("variant.slack", 1.5, ["variant.slack=1.5"]),
        ("device.copy_threads", 0, ["device.copy_threads=0"]),
        ("model", "opt", ["model='opt'", "section"]),
    ],
)
def test_what_is_wrong_is_named_with_its_value(path: str, value: object, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RunConfig.from_mapping(changed(path, value))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_field_is_named() -> None:
    data = copy.deepcopy(GOOD)
    del data["storage"]["directory"]
    with pytest.raises(ConfigurationError, match=r"storage\.directory is missing"):
        RunConfig.from_mapping(data)


def test_loading_reads_yaml_and_refuses_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with pytest.raises(ConfigurationError, match="does not exist"):
        RunConfig.load(path)
    path.write_text("a: [")
    with pytest.raises(ConfigurationError, match="not valid YAML"):
        RunConfig.load(path)
    path.write_text("7")
    with pytest.raises(ConfigurationError, match="expected a mapping"):
        RunConfig.load(path)
    path.write_text(yaml.safe_dump(GOOD))
    assert RunConfig.load(path) == RunConfig.from_mapping(GOOD)

"""A run's configuration: what is wrong with it is said in one sentence that names the field."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from dualblade.config.run import RunConfig
from dualblade.config.storage import StorageConfig
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


PACE = {"name": "stated", "read_gb_per_s": 1.0, "write_gb_per_s": 1.0}
GPU = {"name": "a GPU", "peak_tflops": 50.0, "memory_gb_per_s": 400.0}


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
        ("storage.timeout_s", 0, ["storage.timeout_s=0", "0.001 to 86400"]),
        ("storage.timeout_s", math.inf, ["storage.timeout_s=inf", "a finite number"]),
        ("storage.timeout_s", 1e12, ["storage.timeout_s=1000000000000.0", "0.001 to 86400"]),
        ("storage.directory", "kv\0", ["storage.directory='kv\\x00'", "without NUL"]),
        ("storage.first_lba", -1, ["storage.first_lba=-1"]),
        ("storage.first_lba", 1 << 60, ["storage.first_lba=1152921504606846976", "0 to 1125899906842623"]),
        ("storage.last_lba", 1 << 60, ["storage.last_lba=1152921504606846976", "first_lba=0 to"]),
        ("storage.lba_bytes", 1 << 40, ["storage.lba_bytes=1099511627776", "512 to 1048576"]),
        ("storage.chunk_bytes", 8 << 30, ["storage.chunk_bytes=8589934592", "to 1073741824"]),
        ("storage.read_ahead_kb", -1, ["storage.read_ahead_kb=-1"]),
        ("storage.pace", {**PACE, "latency_us": math.inf}, ["storage.pace.latency_us=inf", "a finite number"]),
        ("storage.pace", {**PACE, "latency_us": 1e9}, ["storage.pace.latency_us=1000000000.0", "0 to 60000000"]),
        ("storage.pace", {**PACE, "read_gb_per_s": 1e-300}, ["storage.pace.read_gb_per_s=1e-300", "0.0001 to"]),
        ("device.gpu", {**GPU, "efficiency": 1e-300}, ["device.gpu.efficiency=1e-300", "0.001 to"]),
        ("device.gpu", {**GPU, "peak_tflops": math.nan}, ["device.gpu.peak_tflops=nan", "a finite number"]),
        ("device.gpu", {**GPU, "peak_tflops": 10**400}, ["device.gpu.peak_tflops=1000", "float"]),
        ("workload.generated_tokens", 1, ["workload.generated_tokens=1", "2 or more"]),
        ("workload.generated_tokens", -5, ["workload.generated_tokens=-5", "2 or more"]),
        ("workload.prompt_tokens", 0, ["workload.prompt_tokens=0", "1 or more"]),
        ("workload.batch_size", 0, ["workload.batch_size=0", "1 to"]),
        ("model.n_layers", 0, ["model.n_layers=0", "1 to"]),
        ("model.intermediate_size", 10**400, ["model.intermediate_size=1000", "1 to 1048576"]),
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


def test_a_cache_beyond_any_storage_is_refused() -> None:
    config = RunConfig.from_mapping(changed("workload.prompt_tokens", 1 << 100))
    with pytest.raises(ConfigurationError, match="bytes is more than any storage takes; check the model's and the"):
        config.geometry()


def test_numbers_from_code_are_held_to_the_same_bounds() -> None:
    with pytest.raises(ConfigurationError, match=r"storage\.timeout_s=inf cannot be used; give 0\.001 to 86400"):
        StorageConfig("file", "kv", timeout_s=math.inf)


def test_a_missing_field_is_named() -> None:
    data = copy.deepcopy(GOOD)
    del data["storage"]["directory"]
    with pytest.raises(ConfigurationError, match=r"storage\.directory is missing"):
        RunConfig.from_mapping(data)


def test_loading_reads_yaml_and_refuses_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with pytest.raises(ConfigurationError, match=r"cannot be read: No such file or directory; give a run directory"):
        RunConfig.load(path)
    for text in ("a: [", "a: 2024-02-31", "a: \0"):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match="not valid YAML"):
            RunConfig.load(path)
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigurationError, match="is not text in UTF-8; write"):
        RunConfig.load(path)
    path.write_text("7")
    with pytest.raises(ConfigurationError, match="expected a mapping"):
        RunConfig.load(path)
    path.write_text(yaml.safe_dump(GOOD))
    assert RunConfig.load(path) == RunConfig.from_mapping(GOOD)

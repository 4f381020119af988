"""DualBladeCache: a transformers Cache whose tokens are on storage, for any decoder-only model, unchanged.

with DualBladeCache(model.config, batch_size=4, max_tokens=600, storage="kv/") as cache:
    model.generate(**inputs, cache=cache)
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DummyLayer

from dualblade.config.device import ReadAheadConfig
from dualblade.config.run import VariantConfig
from dualblade.config.storage import StorageConfig
from dualblade.config.variants import variant_named
from dualblade.errors import ConfigurationError, StorageError
from dualblade.geometry import KVGeometry, LayerShape
from dualblade.model.layers import ModelLayer, model_layers
from dualblade.model.sequences import KeysValues, Sequences
from dualblade.plan.budget import measure_budget
from dualblade.store import KVStore


class StoredLayer(CacheLayerMixin):
    """One layer's view of the sequences; `index` is its number among the layers that store anything."""

    is_croppable = True

    def __init__(self, sequences: Sequences, index: int, shape: LayerShape, *, shared: bool) -> None:
        super().__init__()
        self.is_sliding = shape.window_tokens is not None
        self._sequences = sequences
        self._index = index
        self._shared = shared

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self._sequences.open(key_states.dtype, key_states.device)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Store new tokens and return all that the queries may see; `[B, H, T, D]` each."""
        self.lazy_initialization(key_states, value_states)
        keys, values = self._sequences.update(self._index, key_states, value_states)
        # Later layers read this result too, when its slot already holds another layer.
        return (keys.clone(), values.clone()) if self._shared else (keys, values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        past = self._sequences.visible(self._index)
        return len(past) + query_length, past.start

    def get_seq_length(self) -> int:
        return self._sequences.length(self._index)

    def get_max_length(self) -> int:
        return self._sequences.capacity_tokens


class StoredCache(Cache):
    """A transformers Cache over sequences on a KVStore."""

    def __init__(self, layers: list[ModelLayer], sequences: Sequences) -> None:
        indices = iter(range(len(layers)))
        super().__init__(
            layers=[
                StoredLayer(sequences, next(indices), layer.shape, shared=layer.shared) if layer.shape else DummyLayer()
                for layer in layers
            ]
        )
        self._sequences = sequences

    @property
    def store(self) -> KVStore | None:
        """The store underneath, once the first tokens have come."""
        return self._sequences.store

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens; a negative number, as transformers has it."""
        if tokens_to_remove > 0:
            raise ConfigurationError(
                f"crop({tokens_to_remove}) is ambiguous; give the number of tokens to remove as a negative number"
            )
        if tokens_to_remove:
            self._sequences.crop(max(0, self._sequences.length() + tokens_to_remove))

    def reset(self) -> None:
        """Forget all tokens; the space stays reserved."""
        self._sequences.reset()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Sequence i continues what was sequence `beam_idx[i]`; nothing moves on storage."""
        self._sequences.select(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some sequences only."""
        self._sequences.select(self._sequences.numbers[indices.cpu()])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Continue each sequence `repeats` times, up to the number of sequences that the cache was made for."""
        self._sequences.select(self._sequences.numbers.repeat_interleave(repeats))

    def activate_past_recording(self) -> None:
        """Expect drafted tokens, which may be cropped later."""
        self._sequences.speculative = True


class DualBladeCache(StoredCache):
    """The cache to pass to `generate`. Its store is made when the first tokens come, in their dtype, on their device.

    Args:
        config: the model's configuration.
        batch_size: sequences at once: prompts times num_beams or num_return_sequences.
        max_tokens: tokens of one sequence, prompt and generated ones.
        storage: a folder on a file system with direct I/O, made if missing; or a StorageConfig.
        variant: one of the paper's four, by name, or a VariantConfig.
        budget_bytes: page cache to use; None: what the machine and the cgroup leave when the first tokens come.
        checksum: compare every row read with what was written.
        copy_threads: threads between storage and the model's memory, each with a buffer of one tensor.

    Raises:
        ConfigurationError: the model keeps something other than K and V of past tokens, or an argument is unknown.
        StorageError: the folder cannot be made.
        BudgetError: at the first tokens, if there is no free memory for the store's buffers.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        batch_size: int,
        max_tokens: int,
        storage: str | Path | StorageConfig = "kv",
        variant: str | VariantConfig = "dual_blade",
        budget_bytes: int | None = None,
        *,
        checksum: bool = False,
        copy_threads: int = 2,
    ) -> None:
        layers = model_layers(config)
        shapes = tuple(layer.shape for layer in layers if layer.shape)
        point = variant_named(variant) if isinstance(variant, str) else variant
        place = storage if isinstance(storage, StorageConfig) else _folder(Path(storage))
        place = dataclasses.replace(place, checksum=checksum or place.checksum)

        def open_store(dtype: torch.dtype, device: torch.device) -> KVStore:
            geometry = KVGeometry(shapes, batch_size, max_tokens, str(dtype).removeprefix("torch."))
            ahead = ReadAheadConfig() if point.pipeline == "overlap_full" else None
            with contextlib.ExitStack() as opening:
                store = KVStore(geometry, place, device=device, copy_threads=copy_threads, read_ahead=ahead)
                opening.enter_context(store)
                store.bind(point, measure_budget().b_pc_bytes if budget_bytes is None else budget_bytes)
                opening.pop_all()
            return store

        super().__init__(layers, Sequences(batch_size, max_tokens, open_store))

    def close(self) -> None:
        """End the copy threads and release all space; safe to call twice."""
        self._sequences.close()

    def __enter__(self) -> DualBladeCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:  # otherwise the first error is the one to report
                raise


def _folder(path: Path) -> StorageConfig:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the storage folder {path}: {error.strerror}; choose another one") from None
    return StorageConfig(path.name, str(path))

"""Sequences: one batch of sequences on a KVStore, in the layout of attention, `[B, H, T, D]`.

The store keeps tokens in rows, `[T, B, H, D]`. Attention gets a view of the rows in the store's slot, with the new
tokens after the past ones. Nothing is copied a second time, unless sequences were reordered.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dualblade.checks import check_memory
from dualblade.errors import ConfigurationError
from dualblade.geometry import TensorId
from dualblade.model.batch_index import BatchIndex
from dualblade.store import KVStore

KeysValues = tuple[torch.Tensor, torch.Tensor]
OpenStore = Callable[[torch.dtype, torch.device], KVStore]

# Memory made in inference mode can be written in that mode only, and the copy threads do not run in it.
_outside_inference_mode = torch.inference_mode(False)


class Sequences:
    """The past tokens of each sequence. The store is opened for the dtype and device of the first tokens."""

    def __init__(self, batch_size: int, capacity_tokens: int, open_store: OpenStore, prompt_tokens: int = 1) -> None:
        self.capacity_tokens = capacity_tokens
        self.store: KVStore | None = None
        self.speculative = False
        self._open_store = open_store
        self._prompt_tokens = prompt_tokens
        self._index = BatchIndex(batch_size, capacity_tokens)
        self._iteration = 0

    @classmethod
    def on(cls, store: KVStore, prompt_tokens: int) -> Sequences:
        """New sequences on a store that is open, bound and empty, for prompts of a length that is known."""
        geometry = store.geometry
        sequences = cls(geometry.batch_size, geometry.capacity_tokens, _refuse, prompt_tokens)
        sequences.store = store
        return sequences

    @_outside_inference_mode
    def open(self, dtype: torch.dtype, device: torch.device) -> None:
        """Open the store, unless it is open already."""
        if self.store is None:
            self.store = self._open_store(dtype, device)

    def length(self, layer: int = 0) -> int:
        """Tokens that a layer holds."""
        return self.store.lengths[layer] if self.store else 0

    def visible(self, layer: int) -> range:
        """Tokens that the next query sees of this layer."""
        return self.store.geometry.visible_rows(layer, self.length(layer)) if self.store else range(0)

    @_outside_inference_mode
    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> KeysValues:
        """Add each sequence's next tokens, `[B, H, T, D]`; return the visible past tokens, followed by these.

        The result is valid until the next call.

        Raises:
            ConfigurationError: the tensors are not what this cache was made for, or there is no room for them.
            StorageError, IntegrityError: storage did not take or give back what it should.
        """
        self.open(keys.dtype, keys.device)
        store = self.store
        assert store is not None
        k, v = _as_rows(keys), _as_rows(values)
        for tensor, rows in ((TensorId(layer, "k"), k), (TensorId(layer, "v"), v)):
            _check(store, tensor, rows)
        self._index.admit(k.shape[1])
        if layer == 0:
            self._begin(store, len(k))
        past = self.visible(layer)
        if past:
            tokens = range(past.start, past.stop + len(k))
            slots = store.fetch(layer, room_tokens=len(k))
            keys, values = (self._complete(slot, rows, tokens) for slot, rows in zip(slots, (k, v), strict=True))
        store.append(layer, self._index.spread(k), self._index.spread(v))
        return keys, values

    def _complete(self, slot: torch.Tensor, new: torch.Tensor, tokens: range) -> torch.Tensor:
        """Write the new tokens after the past ones and return all: `[B, H, T, D]`."""
        slot[-len(new) :, : new.shape[1]] = new
        return self._index.gather(tokens, slot).permute(1, 2, 0, 3)

    def _begin(self, store: KVStore, n_tokens: int) -> None:
        """Start a forward pass: decode if it brings one token after the prompt, or several of them when drafting.

        A prompt may come in chunks, and the last chunk may be one token. So the prompt's length decides.
        """
        if self.length() >= self._prompt_tokens and (n_tokens == 1 or self.speculative):
            self._iteration += 1
            store.begin("decode", self._iteration)
        else:
            store.begin("prefill", more_prompt=self.length() + n_tokens < self._prompt_tokens)

    @_outside_inference_mode
    def crop(self, length_tokens: int) -> None:
        """Forget every token from position `length_tokens` on."""
        if self.store:
            self.store.crop(length_tokens)
        self._index.forget(length_tokens)

    def reset(self) -> None:
        """Forget all tokens; the next batch may have another size."""
        self.crop(0)
        self._iteration = 0

    @_outside_inference_mode
    def select(self, sequences: torch.Tensor) -> None:
        """Keep these sequences, in this order; one may be named more than once."""
        if self.store and self.length():
            self._index.select(sequences.to(self.store.device), self.length())

    @property
    def numbers(self) -> torch.Tensor:
        """The sequences' numbers, 0 to B - 1."""
        return torch.arange(self._index.n_sequences or 0)

    def close(self) -> None:
        """Release all space; safe to call twice."""
        self._open_store = _refuse
        if self.store:
            self.store.close()
            self.store = None


def _refuse(dtype: torch.dtype, device: torch.device) -> KVStore:
    raise ConfigurationError("this cache is closed; make a new one")


def _as_rows(tokens: torch.Tensor) -> torch.Tensor:
    """`[B, H, T, D]` -> `[T, B, H, D]`, a view without gradients."""
    return tokens.detach().permute(2, 0, 1, 3)


def _check(store: KVStore, tensor: TensorId, rows: torch.Tensor) -> None:
    """Refuse tensors that the store was not made for."""
    check_memory(store.geometry, store.device, tensor, rows)
    expected = store.geometry.tensors[tensor].row_shape[1:]
    if rows.shape[2:] != expected:
        raise ConfigurationError(
            f"{tensor} comes with {rows.shape[2]} heads of {rows.shape[3]} and the configuration given means "
            f"{expected[0]} of {expected[1]}; pass model.config, or, if that was it, use transformers' own cache"
        )

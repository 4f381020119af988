"""Lanes: where in a stored row each sequence's token lies.

A row has one lane for each sequence that the cache was made for. Beam search and its kin reorder, drop and repeat
sequences between two tokens; the rows on storage stay as they are, and an index says for every token and sequence in
which lane to find it.
"""

from __future__ import annotations

import torch

from dualblade.errors import ConfigurationError


class Lanes:
    """The index of one cache: `[capacity, lanes]`, made when it first differs from "sequence i in lane i"."""

    def __init__(self, n_lanes: int, capacity_tokens: int) -> None:
        self.n_lanes = n_lanes
        self.n_sequences: int | None = None
        self._capacity_tokens = capacity_tokens
        self._lane_of: torch.Tensor | None = None

    def admit(self, n_sequences: int) -> None:
        """Check the batch of a forward pass; the first one decides.

        Raises:
            ConfigurationError: more sequences than lanes, or not as many as before.
        """
        if n_sequences > self.n_lanes:
            raise ConfigurationError(
                f"the model passes {n_sequences} sequences and the cache was made for {self.n_lanes}; make it with "
                f"batch_size={n_sequences} (prompts times num_beams or num_return_sequences)"
            )
        if self.n_sequences not in (None, n_sequences):
            raise ConfigurationError(
                f"the model passes {n_sequences} sequences and the cache holds {self.n_sequences}; "
                "reset() the cache before another batch"
            )
        self.n_sequences = n_sequences

    def select(self, sequences: torch.Tensor, length_tokens: int) -> None:
        """From now on, sequence i continues what was `sequences[i]` in its first `length_tokens` tokens.

        Raises:
            ConfigurationError: more sequences than lanes.
        """
        if len(sequences) > self.n_lanes:
            raise ConfigurationError(
                f"{len(sequences)} sequences do not fit a cache made for {self.n_lanes}; "
                f"make it with batch_size={len(sequences)}"
            )
        if self._lane_of is None:
            lanes = torch.arange(self.n_lanes, device=sequences.device)
            self._lane_of = lanes.repeat(self._capacity_tokens, 1)
        self._lane_of[:length_tokens, : len(sequences)] = self._lane_of[:length_tokens, sequences]
        self.n_sequences = len(sequences)

    def forget(self, first_token: int) -> None:
        """Tokens from `first_token` on will be stored anew, sequence i in lane i."""
        if first_token == 0:
            self.n_sequences = self._lane_of = None
        elif self._lane_of is not None:
            self._lane_of[first_token:] = torch.arange(self.n_lanes, device=self._lane_of.device)

    def gather(self, tokens: range, rows: torch.Tensor) -> torch.Tensor:
        """The sequences' tokens in stored rows: `[T, lanes, H, D]` -> `[T, sequences, H, D]`, a view if possible."""
        if self._lane_of is None:
            return rows[:, : self.n_sequences]
        lane_of = self._lane_of[tokens.start : tokens.stop, : self.n_sequences]
        return rows[torch.arange(len(tokens), device=rows.device)[:, None], lane_of]

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows to store: `[T, sequences, H, D]` -> `[T, lanes, H, D]`, zeros in the lanes that no sequence uses."""
        unused = self.n_lanes - tokens.shape[1]
        return torch.nn.functional.pad(tokens, (0, 0, 0, 0, 0, unused)) if unused else tokens

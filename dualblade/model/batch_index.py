"""Batch index: the place of each sequence's token in a stored row.

A stored row has one column for each sequence that the cache was made for. Beam search and similar methods reorder, drop
and repeat sequences between two tokens. The rows on storage do not change: the index gives the column of every token of
every sequence.
"""

from __future__ import annotations

import torch

from dualblade.errors import ConfigurationError


class BatchIndex:
    """The index of one cache, `[capacity, columns]`; it is made when it first differs from "sequence i in column i"."""

    def __init__(self, n_columns: int, capacity_tokens: int) -> None:
        self.n_columns = n_columns
        self.n_sequences: int | None = None
        self._capacity_tokens = capacity_tokens
        self._column_of: torch.Tensor | None = None

    def admit(self, n_sequences: int) -> None:
        """Check the batch size of a forward pass; the first pass sets it.

        Raises:
            ConfigurationError: more sequences than columns, or not as many as before.
        """
        if n_sequences > self.n_columns:
            raise ConfigurationError(
                f"the model passes {n_sequences} sequences and the cache was made for {self.n_columns}; make it with "
                f"batch_size={n_sequences} (prompts times num_beams or num_return_sequences)"
            )
        if self.n_sequences not in (None, n_sequences):
            raise ConfigurationError(
                f"the model passes {n_sequences} sequences and the cache holds {self.n_sequences}; "
                "reset() the cache before another batch"
            )
        self.n_sequences = n_sequences

    def select(self, sequences: torch.Tensor, length_tokens: int) -> None:
        """Let sequence i continue the first `length_tokens` tokens of what was `sequences[i]`.

        Raises:
            ConfigurationError: more sequences than columns.
        """
        if len(sequences) > self.n_columns:
            raise ConfigurationError(
                f"{len(sequences)} sequences do not fit a cache made for {self.n_columns}; "
                f"make it with batch_size={len(sequences)}"
            )
        if self._column_of is None:
            columns = torch.arange(self.n_columns, device=sequences.device)
            self._column_of = columns.repeat(self._capacity_tokens, 1)
        self._column_of[:length_tokens, : len(sequences)] = self._column_of[:length_tokens, sequences]
        self.n_sequences = len(sequences)

    def forget(self, first_token: int) -> None:
        """Forget tokens from `first_token` on; new ones are stored with sequence i in column i."""
        if first_token == 0:
            self.n_sequences = self._column_of = None
        elif self._column_of is not None:
            self._column_of[first_token:] = torch.arange(self.n_columns, device=self._column_of.device)

    def gather(self, tokens: range, rows: torch.Tensor) -> torch.Tensor:
        """Pick tokens from stored rows: `[T, columns, H, D]` -> `[T, sequences, H, D]`, a view if possible."""
        if self._column_of is None:
            return rows[:, : self.n_sequences]
        column_of = self._column_of[tokens.start : tokens.stop, : self.n_sequences]
        return rows[torch.arange(len(tokens), device=rows.device)[:, None], column_of]

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Make rows to store: `[T, sequences, H, D]` -> `[T, columns, H, D]`, with zeros in unused columns."""
        unused = self.n_columns - tokens.shape[1]
        return torch.nn.functional.pad(tokens, (0, 0, 0, 0, 0, unused)) if unused else tokens

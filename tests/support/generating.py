"""Generation by a tiny model with one cache or another, and what has to be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dualblade import DualBladeCache

NEW = 9  # tokens, unless a test says otherwise

MakeCache = Callable[..., DualBladeCache]


def generate(model: Any, kv: Any, inputs: dict[str, torch.Tensor], **how: Any) -> Any:
    torch.manual_seed(1)
    how = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True, **how}
    return model.generate(**inputs, cache=kv, return_dict_in_generate=True, **how)


def assert_same(got: Any, expected: Any) -> None:
    assert got.sequences.tolist() == expected.sequences.tolist()
    tolerance = 1e-4 if expected.logits[0].dtype == torch.float32 else 2e-2
    torch.testing.assert_close(torch.stack(got.logits), torch.stack(expected.logits), rtol=tolerance, atol=tolerance)

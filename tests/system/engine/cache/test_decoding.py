"""Tokens with the KV cache on storage against transformers' own cache, by `generate`, for every way of decoding."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from dualblade.config.variants import VARIANTS
from dualblade.model.layers import model_layers
from tests.support.generating import NEW, MakeCache, assert_same, generate
from tests.support.tiny_models import CONFIGS, prompts, tiny_model

PROMPT = 19
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Direct I/O for some layers, or for all.
DIRECT = ("dual_blade", "nvme_direct_only")


@cache
def greedy(name: str, dtype: torch.dtype, batch_size: int) -> Any:
    model = tiny_model(name, dtype)
    return generate(model, DynamicCache(config=model.config), prompts(batch_size))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy(make_cache: MakeCache, name: str, dtype: torch.dtype, batch_size: int, variant: str) -> None:
    model = tiny_model(name, dtype)
    with make_cache(model, batch_size, variant) as kv:
        got = generate(model, kv, prompts(batch_size))
        assert kv.store is not None and kv.store.plan is not None
        paths = set(kv.store.plan.layers)
        assert kv.get_seq_length() == PROMPT + NEW - 1
    assert_same(got, greedy(name, dtype, batch_size))
    assert (
        paths
        == {
            "baseline": {"page_cache"},
            "cachepolicy_only": {"page_cache", "page_cache_evict"},
            "nvme_direct_only": {"direct"},
            "dual_blade": {"page_cache", "direct"},
        }[variant]
    )


SAMPLED = {"do_sample": True, "num_return_sequences": 2, "temperature": 3.0}
BEAMS = {"num_beams": 4, "num_return_sequences": 2}
# The drafts come from the prompt, and most of them are wrong: the cache is cropped in nearly every step.
LOOKUP = {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 1}


@pytest.mark.parametrize("variant", DIRECT)
@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize(
    ("n_prompts", "sequences", "how"),
    [(2, 4, SAMPLED), (2, 8, BEAMS), (1, 1, LOOKUP), (3, 3, {"prefill_chunk_size": 6})],
    ids=["sampling", "beams", "lookup", "chunks"],
)
def test_ways_of_decoding(
    make_cache: MakeCache, name: str, variant: str, n_prompts: int, sequences: int, how: dict[str, Any]
) -> None:
    model, inputs = tiny_model(name), prompts(n_prompts)
    expected = generate(model, DynamicCache(config=model.config), inputs, **how)
    with make_cache(model, sequences, variant) as kv:
        got = generate(model, kv, inputs, **how)
    assert_same(got, expected)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_an_assistant_that_drafts(make_cache: MakeCache, name: str) -> None:
    model, inputs = tiny_model(name), prompts(1)
    how = {"assistant_model": tiny_model("qwen3")}
    expected = generate(model, DynamicCache(config=model.config), inputs, **how)
    with make_cache(model, 1) as kv:
        assert_same(generate(model, kv, inputs, **how), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["opt", "mistral", "gemma4"])
def test_a_conversation_goes_on(make_cache: MakeCache, name: str, variant: str) -> None:
    """The second call brings the whole text so far and some more; then the same cache serves another batch."""
    model = tiny_model(name)
    with make_cache(model, 3, variant, max_tokens=60) as kv:
        for n_prompts in (3, 2):
            expected_kv = DynamicCache(config=model.config)
            inputs = prompts(n_prompts)
            for _ in range(2):
                expected = generate(model, expected_kv, inputs)
                assert_same(generate(model, kv, inputs), expected)
                more = torch.cat([expected.sequences, prompts(n_prompts)["input_ids"][:, :5]], dim=1)
                seen = torch.ones(n_prompts, more.shape[1] - PROMPT, dtype=torch.long)
                inputs = {
                    "input_ids": more,
                    "attention_mask": torch.cat([prompts(n_prompts)["attention_mask"], seen], 1),
                }
            kv.reset()
            assert kv.get_seq_length() == 0


def test_inference_mode_and_training_mode(make_cache: MakeCache) -> None:
    """Tensors without version counters, and tensors that ask for gradients."""
    model, inputs = tiny_model("llama"), prompts(2)
    with torch.inference_mode(), make_cache(model, 2) as kv:
        got = generate(model, kv, inputs)
    assert_same(got, greedy("llama", torch.float32, 2))
    with make_cache(model, 2) as kv:
        assert model(**inputs, cache=kv).logits.requires_grad
        new = torch.rand(2, 2, 1, 8, requires_grad=True)
        assert not any(tensor.requires_grad for tensor in kv.update(new, new, 0))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_calls(make_cache: MakeCache, name: str, seed: int) -> None:
    """What beam search, contrastive search and drafting do to a cache, in random order, on random tensors.

    Drafts are cropped at once: transformers' own sliding windows cannot go back any further.
    """
    model, lanes, capacity = tiny_model(name), 6, 40
    chance = random.Random(seed)
    expected = DynamicCache(config=model.config)
    expected.activate_past_recording()
    shapes = [layer.shape for layer in model_layers(model.config)]
    n_sequences = chance.choice([2, 3])
    with make_cache(model, lanes, max_tokens=capacity) as kv:
        for _ in range(40):
            length = kv.get_seq_length()
            action = chance.choice(["update"] * 4 + ["reorder", "select", "repeat"]) if length else "update"
            n_tokens = chance.choice([1, 1, 1, 3, 9])
            if action == "update" and length + n_tokens <= capacity:
                for layer, shape in enumerate(shapes):
                    assert kv.get_mask_sizes(n_tokens, layer) == expected.get_mask_sizes(n_tokens, layer)
                    new = [torch.rand(n_sequences, shape.n_kv_heads, n_tokens, shape.key_dim) for _ in range(2)]
                    for got, wanted in zip(kv.update(*new, layer), expected.update(*new, layer), strict=True):
                        assert torch.equal(got, wanted)
                n_wrong = chance.randrange(n_tokens)
                for each in (kv, expected):
                    each.crop(-n_wrong)
            elif action == "reorder":
                order = torch.tensor([chance.randrange(n_sequences) for _ in range(n_sequences)])
                for each in (kv, expected):
                    each.reorder_cache(order)
            elif action == "select":
                some = torch.tensor(sorted(chance.sample(range(n_sequences), chance.randint(1, n_sequences))))
                for each in (kv, expected):
                    each.batch_select_indices(some)
                n_sequences = len(some)
            elif action == "repeat" and n_sequences * 2 <= lanes:
                for each in (kv, expected):
                    each.batch_repeat_interleave(2)
                n_sequences *= 2
            assert kv.get_seq_length() == expected.get_seq_length()


def test_attention_reads_the_slot_itself(make_cache: MakeCache) -> None:
    """No second copy of K and V: the tensors returned lie in the slot that storage was read into."""
    model = tiny_model("llama")
    with make_cache(model, 2) as kv:
        model(**prompts(2), cache=kv)
        new = torch.rand(2, 2, 1, 8)
        shown = {tensor.untyped_storage().data_ptr() for tensor in kv.update(new, new, 0)}
        assert kv.store is not None
        slots = [{buffer.data.data_ptr() for buffer in slot.buffers} for slot in kv.store._slots]
        assert shown in slots

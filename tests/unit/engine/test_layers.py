"""KV geometry from a configuration, against what transformers' own cache holds after the model has run."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedConfig

from dualblade.errors import ConfigurationError
from dualblade.geometry import LayerShape
from dualblade.model.layers import model_layers

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 5}
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama, grouped": transformers.LlamaConfig(**SMALL, num_key_value_heads=2),
    "qwen3, head size of its own": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=24),
    "gpt2": transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4),
    "opt": transformers.OPTConfig(
        vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32
    ),
    "mistral, windows": transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=5),
    "gemma3, some windows": transformers.Gemma3TextConfig(**SMALL, **MIXED, num_key_value_heads=1, head_dim=16),
    "gemma4, head size by layer and borrowed layers": transformers.Gemma4TextConfig(
        **SMALL,
        **MIXED,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=8,
    ),
    "deepseek, latent": transformers.DeepseekV2Config(
        **SMALL,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=24,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        n_group=1,
        topk_group=1,
        topk_method="greedy",
    ),
    "falcon, one head": transformers.FalconConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, multi_query=True
    ),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_shapes_are_those_that_the_model_caches(config: PreTrainedConfig) -> None:
    cache = DynamicCache(config=config)
    with torch.no_grad():
        AutoModelForCausalLM.from_config(config)(torch.arange(9)[None], cache=cache)
    layers = model_layers(config)
    for layer, kept in zip(layers, cache.layers, strict=True):
        expected = None if kept.keys is None else (kept.keys.shape[1], kept.keys.shape[3], kept.values.shape[3])
        assert _sizes(layer.shape) == expected
        window = getattr(kept, "sliding_window", None)
        assert layer.shape is None or layer.shape.window_tokens == (window and window - 1)


def _sizes(shape: LayerShape | None) -> tuple[int, int, int] | None:
    return None if shape is None else (shape.n_kv_heads, shape.key_dim, shape.value_dim)


def test_layers_whose_tensors_others_use_are_marked() -> None:
    layers = model_layers(CONFIGS["gemma4, head size by layer and borrowed layers"])
    assert [(layer.shape is not None, layer.shared) for layer in layers] == [
        (True, True),
        (True, True),
        (False, False),
        (False, False),
    ]


def test_a_multimodal_model_is_its_text_decoder() -> None:
    text = {**SMALL, **MIXED, "num_key_value_heads": 1, "head_dim": 16}
    layers = model_layers(transformers.Gemma3Config(text_config=text))
    assert [layer.shape for layer in layers] == [LayerShape(1, 16, 16, window) for window in (4, None, 4, None)]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (transformers.MambaConfig(), "mamba has layers of type linear_attention"),
        (transformers.Qwen3NextConfig(), "qwen3_next has layers of type linear_attention"),
        (transformers.T5Config(), "t5 is an encoder-decoder"),
    ],
    ids=["recurrent", "hybrid", "encoder-decoder"],
)
def test_what_is_not_keys_and_values_of_tokens_is_named(config: PreTrainedConfig, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        model_layers(config)

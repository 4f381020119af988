"""Models of the architectures that the cache is held against: real ones but for their size and their random weights."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from dualblade.config.variants import variant_named

VOCABULARY = 128
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    # Weights large enough that the next token depends on the whole sequence.
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_GROUPED: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2, "head_dim": 20}
# Shorter than the prompts. A query sees its own token and six before it.
_WINDOW: dict[str, Any] = {"sliding_window": 7}
_MIXED: dict[str, Any] = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}

CONFIGS: dict[str, PreTrainedConfig] = {
    "opt": transformers.OPTConfig(
        **{name: value for name, value in _SIZES.items() if name not in ("intermediate_size", "initializer_range")},
        ffn_dim=64,
        word_embed_proj_dim=48,
        init_std=0.3,
    ),
    "llama": transformers.LlamaConfig(**{**_GROUPED, "head_dim": 8}),
    "qwen3": transformers.Qwen3Config(**_GROUPED),
    "mistral": transformers.MistralConfig(**_GROUPED, **_WINDOW),
    "gemma2": transformers.Gemma2Config(**_GROUPED, **_MIXED, query_pre_attn_scalar=20),
    "gemma3": transformers.Gemma3TextConfig(**_GROUPED, **_MIXED, query_pre_attn_scalar=20),
    # The last two layers use K and V of the first two.
    "gemma4": transformers.Gemma4TextConfig(
        **{**_GROUPED, "num_hidden_layers": 4},
        **{**_MIXED, "layer_types": ["sliding_attention", "full_attention"] * 2},
        global_head_dim=32,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8,
    ),
}


@cache
def tiny_model(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """The model, the same each time."""
    torch.manual_seed(sum(map(ord, name)))
    return AutoModelForCausalLM.from_config(CONFIGS[name]).to(dtype).eval()


def prompts(batch_size: int, n_tokens: int = 19) -> dict[str, torch.Tensor]:
    """Token ids, `[B, T]`, the later ones padded on the left."""
    ids = torch.randint(3, VOCABULARY, (batch_size, n_tokens), generator=torch.Generator().manual_seed(batch_size))
    mask = torch.ones_like(ids)
    for sequence in range(batch_size):
        mask[sequence, : 2 * sequence] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def save_tiny_llama(folder: Path) -> Path:
    """A model run's weights: a Llama with grouped heads, and a tokenizer with one token for each byte."""
    symbols = ["<pad>", "<end>", *sorted(ByteLevel.alphabet())]
    tokenizer = Tokenizer(BPE({symbol: number for number, symbol in enumerate(symbols)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(3)
    sizes = {**_GROUPED, "head_dim": 8, "vocab_size": len(symbols), "bos_token_id": None, "eos_token_id": 1}
    LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
    return folder


def tiny_llama_run(weights: Path, directory: Path, **workload: Any) -> dict[str, Any]:
    """config.yaml of a model run with these weights, checksums on."""
    return {
        "variant": dataclasses.asdict(variant_named("dual_blade")),
        "model": {
            "name": "tiny_llama",
            "n_layers": 3,
            "n_heads": 6,
            "n_kv_heads": 2,
            "head_dim": 8,
            "hidden_size": 48,
            "intermediate_size": 64,
            "mlp_matrices": 3,
            "dtype": "float32",
            "weights": str(weights),
        },
        "workload": {
            "name": "text",
            "batch_size": 2,
            "prompt_tokens": 24,
            "generated_tokens": 7,
            "source": "model",
            "prompts": str(weights / "prompts.txt"),
            **workload,
        },
        "storage": {"name": "file", "directory": str(directory), "checksum": True},
        "device": {"name": "host"},
    }

"""The KV cache of each layer of a Hugging Face decoder, from its configuration alone."""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from dualblade.errors import ConfigurationError
from dualblade.geometry import LayerShape


class ModelLayer(NamedTuple):
    """One decoder layer: the shape of its cache, or None when it keeps none (no attention, or another layer's K and V).

    `shared` is true when later layers of the same forward pass use this layer's K and V as well.
    """

    shape: LayerShape | None
    shared: bool = False


def model_layers(config: PreTrainedConfig) -> list[ModelLayer]:
    """Every layer of the model's text decoder, as transformers' own dynamic cache would see it.

    Raises:
        ConfigurationError: a layer keeps something other than K and V of past tokens.
    """
    if config.is_encoder_decoder:
        raise ConfigurationError(
            f"{config.model_type} is an encoder-decoder, and this cache holds decoder-only models; "
            "use transformers' own cache for it"
        )
    text_config = config.get_text_config(decoder=True)
    types, windows = get_layer_types_and_kwargs(text_config)
    sharing = getattr(text_config, "kv_sharing_modes", None) or [None] * len(types)
    return [
        ModelLayer(_shape(layer, kind, window.get("sliding_window"), config.model_type), mode not in (None, "reuse"))
        for layer, kind, window, mode in zip(text_config.per_layer_config, types, windows, sharing, strict=True)
    ]


def _shape(layer: PreTrainedConfig, kind: str, window: int | None, model_type: str) -> LayerShape | None:
    if kind == "dummy":
        return None
    if kind not in ("full_attention", "sliding_attention", "chunked_attention"):
        raise ConfigurationError(
            f"{model_type} has layers of type {kind}, which keep more than K and V of past tokens; "
            "use transformers' own cache for it"
        )
    n_kv_heads, key_dim, value_dim = _heads(layer)
    # A window counts the query's own token.
    return LayerShape(n_kv_heads, key_dim, value_dim, None if window is None else window - 1)


def _heads(layer: Any) -> tuple[int, int, int]:
    """KV heads, and sizes of K and V; multi-head latent attention caches its latent as K and the rotated part as V."""
    if getattr(layer, "kv_lora_rank", None):
        return 1, layer.kv_lora_rank, layer.qk_rope_head_dim
    head_dim = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
    value_dim = getattr(layer, "v_head_dim", None) or head_dim
    # Falcon has one head for all queries, or, in its later architecture, one for each.
    if getattr(layer, "multi_query", False) and not getattr(layer, "new_decoder_architecture", False):
        return 1, head_dim, value_dim
    return getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads, head_dim, value_dim

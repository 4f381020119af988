"""A cache on storage that fails, or is used in a way that it was not made for: no wrong token, one clear sentence."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, LogitsProcessorList

from dualblade import DualBladeCache
from dualblade.errors import ConfigurationError, IntegrityError, StorageError
from dualblade.geometry import TensorId
from dualblade.linux.mounts import mount_of, read_mounts
from dualblade.paths.base import DeviceBytes
from dualblade.paths.direct import NvmeDirect
from dualblade.store import KVStore
from tests.support.generating import NEW, MakeCache, assert_same, generate
from tests.support.tiny_models import prompts, tiny_model


@pytest.mark.parametrize("n_layers", [1, 2, 5])
def test_a_failed_write_ends_generation_or_came_too_late_to_matter(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch, n_layers: int
) -> None:
    model = LlamaForCausalLM(
        LlamaConfig(**{**tiny_model("llama").config.to_dict(), "num_hidden_layers": n_layers})
    ).eval()
    expected = generate(model, DynamicCache(config=model.config), prompts(2))
    writes = 2 * n_layers * NEW
    real_write = NvmeDirect.write
    raised = 0
    for failing in {0, 1, 2, writes // 2, writes - 2 * n_layers - 1, writes - 1}:
        count = itertools.count()

        def write(*args: Any, failing: int = failing, count: Iterator[int] = count) -> DeviceBytes:
            if next(count) == failing:
                raise StorageError("the device is gone")
            return real_write(*args)

        monkeypatch.setattr(NvmeDirect, "write", write)
        with make_cache(model, 2, "nvme_direct_only") as kv:
            try:
                assert_same(generate(model, kv, prompts(2)), expected)
            except StorageError as error:
                assert "the device is gone" in str(error)
                raised += 1
            else:
                assert failing >= writes - 2 * n_layers
                with pytest.raises(StorageError, match="the device is gone"):
                    for _ in range(2):
                        model(torch.ones(2, 1, dtype=torch.long), cache=kv)
    assert raised >= 4


@pytest.mark.parametrize("variant", ["baseline", "nvme_direct_only"])
def test_a_byte_changed_on_storage_ends_generation(make_cache: MakeCache, variant: str) -> None:
    """The first row, which no later write covers: the prompt fills more than a block."""
    model = tiny_model("llama")

    def damage(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] == 40 + 3:
            assert kv.store is not None
            kv.store.synchronize()
            (path,) = kv.store.paths.values()
            fd = path.target.fd if isinstance(path, NvmeDirect) else path._files[TensorId(0, "k")].fd  # type: ignore[attr-defined]
            with open(f"/proc/self/fd/{fd}", "r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))
        return scores

    kv = make_cache(model, 2, variant, max_tokens=60)
    with kv, pytest.raises(IntegrityError, match="layer 0 K: row 0 read back differs"):
        generate(model, kv, prompts(2, n_tokens=40), logits_processor=LogitsProcessorList([damage]))


@pytest.mark.parametrize("words", ["the caller's own", "kept its blocks"])
def test_what_goes_wrong_first_is_what_the_caller_hears(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    model, real_close = tiny_model("llama"), KVStore.close

    def close(store: KVStore) -> None:
        real_close(store)
        raise StorageError("the device kept its blocks")

    monkeypatch.setattr(KVStore, "close", close)
    with pytest.raises((StorageError, RuntimeError), match=words), make_cache(model, 2) as kv:
        generate(model, kv, prompts(2), max_new_tokens=2)
        if words == "the caller's own":
            raise RuntimeError("the caller's own")


def test_misuse_is_answered_with_a_sentence(make_cache: MakeCache, disk_path: Path) -> None:
    model = tiny_model("llama")
    with make_cache(model, 4) as kv:
        with pytest.raises(
            ConfigurationError, match=r"passes 6 sequences and the cache was made for 4; .*batch_size=6"
        ):
            generate(model, kv, prompts(2), num_beams=3)
        generate(model, kv, prompts(4))
        with pytest.raises(ConfigurationError, match="holds 40 tokens and 41 are needed; make it with a larger"):
            model(torch.ones(4, 41 - kv.get_seq_length(), dtype=torch.long), cache=kv)
        with pytest.raises(
            ConfigurationError, match=r"8 sequences do not fit .* made for 4; make it with batch_size=8"
        ):
            kv.batch_repeat_interleave(2)
        with pytest.raises(ConfigurationError, match="negative number"):
            kv.crop(3)
        with pytest.raises(ConfigurationError, match="comes as bfloat16 on cpu and the cache holds float32"):
            tiny_model("llama", torch.bfloat16)(torch.ones(4, 1, dtype=torch.long), cache=kv)
        generate(model, kv, {"input_ids": torch.ones(4, 40, dtype=torch.long)}, max_new_tokens=1)
    with pytest.raises(ConfigurationError, match="this cache is closed"):
        model(torch.ones(4, 1, dtype=torch.long), cache=kv)
    with make_cache(tiny_model("qwen3"), 4) as kv, pytest.raises(ConfigurationError, match=r"2 heads of 8 .* 2 of 20"):
        generate(model, kv, prompts(4))
    with pytest.raises(ConfigurationError, match="'fast' is not known"):
        DualBladeCache(model.config, 4, 40, disk_path, "fast")
    (disk_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot make the storage folder .*: Not a directory"):
        DualBladeCache(model.config, 4, 40, disk_path / "file" / "kv")


def test_memory_is_no_place_for_direct_io() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or mount_of(memory, read_mounts()).fs_type != "tmpfs":
        pytest.skip("no tmpfs is mounted on /dev/shm")
    model = tiny_model("llama")
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        DualBladeCache(model.config, 2, 40, folder, "nvme_direct_only") as kv,
        pytest.raises(StorageError, match="lies on tmpfs, which has no direct I/O"),
    ):
        generate(model, kv, prompts(2))

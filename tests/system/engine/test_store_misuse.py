"""KVStore used wrongly: one clear sentence, and nothing changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dualblade.config.variants import VARIANTS
from dualblade.errors import ConfigurationError, StorageError
from dualblade.geometry import KVGeometry
from dualblade.store import KVStore
from tests.support.stores import rows, storage


def test_misuse_is_answered_with_a_sentence(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(1, 1, 8, batch_size=1, capacity_tokens=4)
    with KVStore(geometry, storage(disk_path)) as store:
        with pytest.raises(ConfigurationError, match="call bind first"):
            store.prefill(0, *rows(geometry, 0, 2))
        store.bind(VARIANTS["baseline"], 0)
        store.prefill(0, *rows(geometry, 0, 2))
        with pytest.raises(ConfigurationError, match="already holds 2 tokens"):
            store.prefill(0, *rows(geometry, 0, 1))
        with pytest.raises(ConfigurationError, match="holds 4 tokens and 5 are needed"):
            store.append(0, *rows(geometry, 0, 3))
    with pytest.raises(ConfigurationError, match="or closed again"):
        store.append(0, *rows(geometry, 0, 1))
    with pytest.raises(ConfigurationError, match=r"^copy_threads=0 cannot be used; give 1 or more$"):
        KVStore(geometry, storage(disk_path), copy_threads=0)


def tokens(n_tokens: int, batch: int = 2, dtype: torch.dtype = torch.float16, device: str = "cpu") -> torch.Tensor:
    return torch.ones(n_tokens, batch, 1, 8, dtype=dtype, device=device)


@pytest.mark.parametrize("variant", ["baseline", "nvme_direct_only"])
@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda store: store.append(0, tokens(2), tokens(1)), r"layer 0 comes with 2 tokens of K and 1 of V"),
        (
            lambda store: store.append(0, tokens(2), tokens(2, batch=3)),
            r"layer 0 V comes as \[2, 3, 1, 8\]; give \[T, 2",
        ),
        (
            lambda store: store.append(0, tokens(2)[0], tokens(2)),
            r"layer 0 K comes as \[2, 1, 8\]; give \[T, 2, 1, 8\]",
        ),
        (lambda store: store.append(0, tokens(0), tokens(0)), r"\[0, 2, 1, 8\]; give .* T tokens, one or more"),
        (lambda store: store.append(0, tokens(1, dtype=torch.float32), tokens(1)), "float32 on cpu and .* float16 on"),
        (lambda store: store.append(0, tokens(1), tokens(1, device="meta")), "V comes as float16 on meta and"),
        (
            lambda store: store.append(2, tokens(1), tokens(1)),
            "layer=2 is none of the cache's; give one of the layers 0 to 1",
        ),
        (lambda store: store.prefill(-1, tokens(1), tokens(1)), "layer=-1 is none"),
        (lambda store: store.prefetch(2), "layer=2 is none"),
        (lambda store: store.fetch(2), "layer=2 is none"),
        (lambda store: store.fetch(1), "layer 1 has no tokens to fetch; append some first"),
        (lambda store: store.fetch(0, room_tokens=-1), "room_tokens=-1 cannot be used; give 0 or more"),
        (lambda store: store.crop(-1), "n_tokens=-1 cannot be used; give 0 or more"),
    ],
)
def test_tokens_that_do_not_fit_are_refused_and_change_nothing(
    disk_path: Path, variant: str, misuse: Callable[[KVStore], object], words: str
) -> None:
    geometry = KVGeometry.uniform(2, 1, 8, batch_size=2, capacity_tokens=4)
    kept = rows(geometry, 0, 2)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS[variant], 0)
        store.append(0, *kept)
        with pytest.raises(ConfigurationError, match=words) as raised:
            misuse(store)
        assert "\n" not in str(raised.value)
        assert store.lengths == [2, 0]
        for got, expected in zip(store.fetch(0), kept, strict=True):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("variant", ["baseline", "nvme_direct_only"])
def test_a_layer_without_tokens_is_not_prefetched(disk_path: Path, variant: str) -> None:
    geometry = KVGeometry.uniform(2, 1, 8, batch_size=2, capacity_tokens=4)
    with KVStore(geometry, storage(disk_path), keep_log=True) as store:
        store.bind(VARIANTS[variant], 0)
        store.prefetch(0)
        store.append(0, *rows(geometry, 0, 1))
        store.synchronize()
        assert [op.op for op in store.operations] == ["write", "write"]


def test_an_append_before_bind_leaves_the_store_as_it_was(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(2, 1, 8, batch_size=2, capacity_tokens=4)
    with KVStore(geometry, storage(disk_path)) as store:
        with pytest.raises(ConfigurationError, match="call bind first"):
            store.append(0, *rows(geometry, 0, 2))
        assert store.lengths == [0, 0]


def test_a_store_is_bound_once_and_closes_all_its_files(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(2, 1, 8, batch_size=2, capacity_tokens=4)
    before = open_files()
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        bound = open_files()
        with pytest.raises(ConfigurationError, match="bind was called before"):
            store.bind(VARIANTS["baseline"], 0)
        assert open_files() <= bound
    assert open_files() <= before


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_plan_that_failed_can_be_made_again(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(2, 1, 8, batch_size=2, capacity_tokens=4)
    folder = disk_path / "later"
    with KVStore(geometry, storage(folder)) as store:
        with pytest.raises(StorageError, match="cannot create a file"):
            store.bind(VARIANTS["dual_blade"], 0)
        folder.mkdir()
        store.bind(VARIANTS["dual_blade"], 0)
        store.append(0, *rows(geometry, 0, 1))
        store.synchronize()

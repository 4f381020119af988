"""KVStore against plain tensors, on real storage: every variant, odd shapes, any order of calls; memory and threads."""

from __future__ import annotations

import dataclasses
import gc
import threading
import tracemalloc
from pathlib import Path

import pytest
import torch

from dualblade.config.device import LinkPace, ReadAheadConfig
from dualblade.config.run import Pipeline, VariantConfig
from dualblade.config.variants import VARIANTS
from dualblade.geometry import KVGeometry, LayerShape
from dualblade.pipeline.link import Finish, PacedLink
from dualblade.store import KVStore
from tests.support.stores import LINKS, rows, storage

MIXED = (LayerShape(3, 20, 28), LayerShape(1, 64, 64, window_tokens=5), LayerShape(2, 33, 33))


def half_budget(geometry: KVGeometry, variant: VariantConfig, threads: int) -> int:
    """B_pc for about half of the layers; evicted tensors pass through the page cache and need room too."""
    passing_bytes = threads * geometry.largest_tensor_bytes if variant.overflow == "evict" else 0
    return int((geometry.working_set_bytes * 0.55 + passing_bytes) / 0.95) + 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("pipeline", "link", "threads"),
    [
        ("none", "host", 1),
        ("adaptive", "host", 2),
        ("cross", "paced", 3),
        ("cross", "shared", 2),
        ("overlap_full", "host", 2),
        ("overlap_full", "shared", 2),
        ("overlap_full", "paced", 2),
    ],
)
@pytest.mark.parametrize("layers", [MIXED, MIXED[:1], MIXED[1:] * 3], ids=["odd", "single", "even"])
def test_fetch_gives_what_was_appended(
    disk_path: Path, variant: str, pipeline: Pipeline, link: str, threads: int, layers: tuple[LayerShape, ...]
) -> None:
    """Decode with chunks of several sizes, a crop in the middle, and every fetched byte compared."""
    torch.manual_seed(threads)
    geometry = KVGeometry(layers, batch_size=3, capacity_tokens=40, dtype="bfloat16")
    model: list[list[torch.Tensor]] = [[] for _ in layers]
    ahead = ReadAheadConfig(pieces=3, piece_bytes=4096) if pipeline == "overlap_full" else None
    point = dataclasses.replace(VARIANTS[variant], pipeline=pipeline)
    with KVStore(geometry, storage(disk_path), copy_threads=threads, link=LINKS[link], read_ahead=ahead) as store:
        plan = store.bind(point, half_budget(geometry, VARIANTS[variant], threads))
        if variant in ("dual_blade", "cachepolicy_only") and len(layers) > 1:
            assert 0 < plan.n1 < len(layers)
        for step, n_tokens in enumerate([17, 1, 1, 4, 1, -6, 1, 1, 9, 1]):
            if n_tokens < 0:
                store.crop(store.lengths[0] + n_tokens)
                model = [[x[:n_tokens] for x in kept] for kept in model]
                continue
            for layer in range(len(layers)):
                new = rows(geometry, layer, n_tokens)
                if step == 0:
                    store.prefill(layer, *new)
                    model[layer] = list(new)
                    continue
                fetched = store.fetch(layer, room_tokens=n_tokens)
                seen = geometry.visible_rows(layer, store.lengths[layer])
                for got, kept, added in zip(fetched, model[layer], new, strict=True):
                    assert torch.equal(got[: len(seen)], kept[seen.start :]), (step, layer)
                    got[len(seen) :] = added
                store.append(layer, *new)
                model[layer] = [torch.cat(pair) for pair in zip(model[layer], new, strict=True)]
    assert list(disk_path.iterdir()) == []


def test_a_store_in_use_takes_no_more_memory(disk_path: Path) -> None:
    """The budget is fixed when a store is bound: later growth would take memory from the page cache."""
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=64)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["dual_blade"], half_budget(geometry, VARIANTS["dual_blade"], 2))

        def generate(n_times: int) -> int:
            for _ in range(n_times):
                for layer in range(2):
                    store.prefill(layer, *rows(geometry, layer, 8))
                for _ in range(10):
                    for layer in range(2):
                        store.fetch(layer, room_tokens=1)
                        store.append(layer, *rows(geometry, layer, 1))
                store.crop(0)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        generate(2)
        tracemalloc.start()
        try:
            grown_bytes = -generate(5) + generate(20)
        finally:
            tracemalloc.stop()
    assert grown_bytes < 20 * 10 * 8 * 10  # bytes per operation; a kept record takes 500


class CountingLink(PacedLink):
    """Notes how many cores torch may use in the threads that copy."""

    def __init__(self) -> None:
        super().__init__(LinkPace(gb_per_s=100.0, source="a test"))
        self.cores: dict[int, int] = {}

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor, computed: None) -> Finish:
        self.cores[threading.get_ident()] = torch.get_num_threads()
        return super().start_up(device, pinned, computed)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor, computed: None) -> Finish:
        self.cores[threading.get_ident()] = torch.get_num_threads()
        return super().start_down(pinned, device, computed)


def test_copies_take_one_core_each_and_the_callers_threads_as_many_as_before(disk_path: Path) -> None:
    def cores() -> list[int]:
        counted = [torch.get_num_threads()]
        other = threading.Thread(target=lambda: counted.append(torch.get_num_threads()))
        other.start()
        other.join()
        return counted

    geometry, link, before = (
        KVGeometry(MIXED, batch_size=3, capacity_tokens=40),
        CountingLink(),
        torch.get_num_threads(),
    )
    torch.set_num_threads(3)
    try:
        with KVStore(geometry, storage(disk_path), link=link, read_ahead=ReadAheadConfig(2, 4096)) as store:
            assert cores() == [3, 3]
            store.bind(dataclasses.replace(VARIANTS["nvme_direct_only"], pipeline="overlap_full"), 0)
            for layer in range(3):
                store.prefill(layer, *rows(geometry, layer, 8))
            store.fetch(0)
        assert cores() == [3, 3]
    finally:
        torch.set_num_threads(before)
    assert len(link.cores) > 2 and set(link.cores.values()) == {1}

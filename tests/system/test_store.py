"""KVStore against plain tensors, on real storage: every variant, odd shapes, any order of calls, and failures."""

from __future__ import annotations

import dataclasses
import gc
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dualblade.config import Pipeline, VariantConfig
from dualblade.device_config import LinkPace, ReadAheadConfig
from dualblade.errors import ConfigurationError, IntegrityError, StorageError
from dualblade.geometry import KVGeometry, LayerShape, TensorId
from dualblade.link import HostLink, Link, PacedLink, SharedLink
from dualblade.nvme_direct import NvmeDirect
from dualblade.storage_config import StorageConfig
from dualblade.store import KVStore
from dualblade.transfer import Finish
from dualblade.variants import VARIANTS

MIXED = (LayerShape(3, 20, 28), LayerShape(1, 64, 64, window_tokens=5), LayerShape(2, 33, 33))


def storage(directory: Path, **changes: object) -> StorageConfig:
    return dataclasses.replace(StorageConfig("test", str(directory), checksum=True), **changes)  # type: ignore[arg-type]


def half_budget(geometry: KVGeometry, variant: VariantConfig, threads: int) -> int:
    """B_pc for about half of the layers; what is evicted passes through the page cache, which takes room too."""
    passing_bytes = threads * geometry.largest_tensor_bytes if variant.overflow == "evict" else 0
    return int((geometry.working_set_bytes * 0.55 + passing_bytes) / 0.95) + 1


def rows(geometry: KVGeometry, layer: int, n_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = getattr(torch, geometry.dtype)
    k, v = (torch.rand(n_tokens, *geometry.row_shape(TensorId(layer, kind))).to(dtype) for kind in ("k", "v"))  # type: ignore[arg-type]
    return k, v


LINKS: dict[str, Link] = {
    "host": HostLink(),
    "shared": SharedLink(),
    "paced": PacedLink(LinkPace(gb_per_s=100.0, source="a test")),
}


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


def test_a_failed_write_is_raised_and_its_rows_are_never_served(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=16)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        good = {layer: rows(geometry, layer, 8) for layer in range(2)}
        for layer, new in good.items():
            store.prefill(layer, *new)
        store.synchronize()
        direct = store.paths["direct"]
        assert isinstance(direct, NvmeDirect)
        bad_span = dataclasses.replace(direct._span(TensorId(0, "v"), range(8, 9)), offset_bytes=1 << 40)
        real_span = direct._span
        monkeypatch.setattr(
            direct,
            "_span",
            lambda tensor, rows: bad_span if (tensor.kind, rows) == ("v", range(8, 9)) else real_span(tensor, rows),
        )
        store.fetch(0)
        store.append(0, *rows(geometry, 0, 1))
        with pytest.raises(StorageError, match="outside the extents"):
            store.synchronize()
        monkeypatch.undo()
        for _ in range(2):  # layer 0 cannot be read any more, and says why; layer 1 can
            with pytest.raises(StorageError, match="outside the extents"):
                store.fetch(0)
            for got, expected in zip(store.fetch(1), good[1], strict=True):
                assert torch.equal(got, expected)
        with pytest.raises(StorageError, match="outside the extents"):
            store.synchronize()  # layer 0 was tried once more, ahead of its use
        store.crop(8)
        for got, expected in zip(store.fetch(0), good[0], strict=True):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("op", ["read", "write"])
def test_after_a_failure_a_store_can_start_over(disk_path: Path, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """What nobody has seen is raised once; then the same tensor is written and read anew."""
    geometry = KVGeometry.uniform(3, 1, 512, batch_size=4, capacity_tokens=16)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        for layer in range(3):
            store.prefill(layer, *rows(geometry, layer, 8))
        store.synchronize()
        with monkeypatch.context() as broken:
            broken.setattr(store.paths["direct"], op, failing)
            if op == "read":
                store.prefetch(1)
            else:
                store.append(1, *rows(geometry, 1, 1))
            with pytest.raises(StorageError, match="no more"):
                store.crop(0)
        store.crop(0)
        again = {layer: rows(geometry, layer, 4) for layer in range(3)}
        for layer, new in again.items():
            store.prefill(layer, *new)
        for layer, new in again.items():
            for got, expected in zip(store.fetch(layer), new, strict=True):
                assert torch.equal(got, expected)


def failing(*args: object, **settings: object) -> None:
    raise StorageError("no more")


def test_a_store_is_closed_while_loads_wait_for_others(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C in a fetch does: layer 1 waits for V of layer 0, which is dropped behind a write that hangs."""
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=64)
    hangs, goes_on = threading.Event(), threading.Event()
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        for layer in range(2):
            store.prefill(layer, *rows(geometry, layer, 16))
        store.synchronize()
        direct = store.paths["direct"]
        real_write = direct.write

        def write(tensor: TensorId, *arguments: Any) -> None:
            if tensor == (0, "v"):
                hangs.set()
                assert goes_on.wait(30)
            real_write(tensor, *arguments)

        monkeypatch.setattr(direct, "write", write)
        store.append(0, *rows(geometry, 0, 16))
        store.prefetch(0)
        store._current = store._slots[1]
        store.prefetch(1)
        assert hangs.wait(30)
        closing = threading.Thread(target=store.close, daemon=True)
        closing.start()
        goes_on.set()
        closing.join(30)
        assert not closing.is_alive()


@pytest.mark.parametrize("link", ["host", "shared"])
def test_a_store_that_cannot_be_made_leaves_no_threads(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=16)
    before = set(threading.enumerate())
    monkeypatch.setattr("dualblade.store.open_slots", failing)
    with pytest.raises(StorageError, match="no more"):
        KVStore(geometry, storage(disk_path), link=LINKS[link], read_ahead=ReadAheadConfig())
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ("pipeline", "link"),
    [("cross", "paced"), ("overlap_full", "host"), ("overlap_full", "shared"), ("overlap_full", "paced")],
)
def test_a_failed_read_is_raised_and_the_layers_after_it_still_come(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, link: str
) -> None:
    geometry = KVGeometry.uniform(3, 1, 512, batch_size=4, capacity_tokens=16)
    ahead = ReadAheadConfig(pieces=2, piece_bytes=4096)
    with KVStore(geometry, storage(disk_path), link=LINKS[link], read_ahead=ahead) as store:
        store.bind(dataclasses.replace(VARIANTS["nvme_direct_only"], pipeline=pipeline), 0)
        kept = {layer: rows(geometry, layer, 8) for layer in range(3)}
        for layer, new in kept.items():
            store.prefill(layer, *new)
        store.synchronize()
        direct = store.paths["direct"]
        assert isinstance(direct, NvmeDirect)
        real_span = direct._span
        bad_span = dataclasses.replace(real_span(TensorId(1, "k"), range(8)), offset_bytes=1 << 40)
        monkeypatch.setattr(
            direct, "_span", lambda tensor, rows: bad_span if tensor == (1, "k") else real_span(tensor, rows)
        )
        for layer in (0, 2, 0):
            for got, expected in zip(store.fetch(layer), kept[layer], strict=True):
                assert torch.equal(got, expected)
            with pytest.raises(StorageError, match="outside the extents"):
                store.fetch(1)
        monkeypatch.undo()


def test_bytes_changed_behind_our_back_are_not_served(disk_path: Path) -> None:
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=16)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        for layer in range(2):
            store.prefill(layer, *rows(geometry, layer, 8))
        store.synchronize()
        direct = store.paths["direct"]
        assert isinstance(direct, NvmeDirect)
        with open(f"/proc/self/fd/{direct.target.fd}", "r+b") as file:
            file.seek(direct.lba_map.extents[TensorId(1, "k")].first_lba * 4096 + 4096)
            file.write(b"\xff")
        store.fetch(0)
        with pytest.raises(IntegrityError, match=r"layer 1 K: row 1 read back differs"):
            store.fetch(1)


def test_a_store_in_use_takes_no_more_memory(disk_path: Path) -> None:
    """The budget is fixed when a store is bound: what grew afterwards would come out of the page cache."""
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
    assert grown_bytes < 20 * 10 * 8 * 10  # bytes an operation, each of which takes 500 where it is remembered


class CountingLink(PacedLink):
    """Notes how many cores torch may use in the threads that copy."""

    def __init__(self) -> None:
        super().__init__(LinkPace(gb_per_s=100.0, source="a test"))
        self.cores: dict[int, int] = {}

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor) -> Finish:
        self.cores[threading.get_ident()] = torch.get_num_threads()
        return super().start_up(device, pinned)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor) -> Finish:
        self.cores[threading.get_ident()] = torch.get_num_threads()
        return super().start_down(pinned, device)


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
def test_what_the_store_was_not_made_for_is_refused_and_changes_nothing(
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
def test_what_is_not_there_yet_is_not_prefetched(disk_path: Path, variant: str) -> None:
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


def test_a_store_is_bound_once_and_gives_all_its_files_back(disk_path: Path) -> None:
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

"""KVStore when a transfer or its constructor fails: the error, reads that still work, and starting over."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from dualblade.config.device import ReadAheadConfig
from dualblade.config.run import Pipeline
from dualblade.config.variants import VARIANTS
from dualblade.errors import IntegrityError, StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import DeviceBytes
from dualblade.paths.direct import NvmeDirect
from dualblade.store import KVStore
from tests.support.stores import LINKS, filled, rows, storage


def test_a_failed_write_is_raised_and_its_rows_are_never_served(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=16)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        good = filled(store)
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
    """An error is raised once; then the same tensor can be written and read again."""
    geometry = KVGeometry.uniform(3, 1, 512, batch_size=4, capacity_tokens=16)
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        filled(store)
        with monkeypatch.context() as broken:
            broken.setattr(store.paths["direct"], op, failing)
            if op == "read":
                store.prefetch(1)
            else:
                store.append(1, *rows(geometry, 1, 1))
            with pytest.raises(StorageError, match="no more"):
                store.crop(0)
        store.crop(0)
        again = filled(store, 4)
        for layer, new in again.items():
            for got, expected in zip(store.fetch(layer), new, strict=True):
                assert torch.equal(got, expected)


def failing(*args: object, **settings: object) -> None:
    raise StorageError("no more")


def test_a_store_is_closed_while_loads_wait_for_others(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-C in a fetch: layer 1 waits for V of layer 0, which is dropped behind a write that hangs."""
    geometry = KVGeometry.uniform(2, 1, 512, batch_size=4, capacity_tokens=64)
    hangs, goes_on = threading.Event(), threading.Event()
    with KVStore(geometry, storage(disk_path)) as store:
        store.bind(VARIANTS["nvme_direct_only"], 0)
        filled(store, 16)
        direct = store.paths["direct"]
        real_write = direct.write

        def write(tensor: TensorId, *arguments: Any) -> DeviceBytes:
            if tensor == (0, "v"):
                hangs.set()
                assert goes_on.wait(30)
            return real_write(tensor, *arguments)

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
        kept = filled(store)
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
        filled(store)
        direct = store.paths["direct"]
        assert isinstance(direct, NvmeDirect)
        with open(f"/proc/self/fd/{direct.target.fd}", "r+b") as file:
            file.seek(direct.lba_map.extents[TensorId(1, "k")].first_lba * 4096 + 4096)
            file.write(b"\xff")
        store.fetch(0)
        with pytest.raises(IntegrityError, match=r"layer 1 K: row 1 read back differs"):
            store.fetch(1)

"""Order under every pipeline: delays at random in all threads and on the link; every byte on the device is compared."""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from dualblade.config.device import LinkPace, ReadAheadConfig
from dualblade.config.run import Pipeline, VariantConfig
from dualblade.config.storage import StorageConfig
from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.direct import NvmeDirect
from dualblade.pipeline.link import HostLink, Link, PacedLink, SharedLink
from dualblade.store import KVStore

PACE = LinkPace(gb_per_s=50.0, source="a test")
SCHEDULES = 340  # of each pipeline
LAYERS = 3
STEPS = 3
DELAYS_S = (*(0.0,) * 6, 0.00005, 0.0003)
GEOMETRY = KVGeometry.uniform(LAYERS, 1, 600, batch_size=2, capacity_tokens=8)  # rows of 2400 bytes: blocks are shared


class Delays:
    """Delays calls, before and after their work."""

    def __init__(self) -> None:
        self.shuffler = random.Random()

    def around(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            self._pass()
            result = method(*args, **kwargs)
            self._pass()
            return self.around(result) if callable(result) else result

        return call

    def _pass(self) -> None:
        if delay_s := self.shuffler.choice(DELAYS_S):
            time.sleep(delay_s)


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Delays]:
    delays = Delays()
    for owner, names in (
        (NvmeDirect, ("read", "write", "start_read", "start_piece", "start_mirrored")),
        (HostLink, ("start_up", "start_down")),
        (PacedLink, ("start_up", "start_down")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, delays.around(getattr(owner, name)))
    yield delays


@pytest.mark.parametrize(
    ("pipeline", "link", "threads"),
    [
        ("intra", HostLink(), 2),
        ("cross", PacedLink(PACE), 2),
        ("adaptive", PacedLink(PACE), 3),
        ("overlap_full", HostLink(), 2),
        ("overlap_full", SharedLink(), 2),
        ("overlap_full", PacedLink(PACE), 2),
    ],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_every_byte_under_every_schedule(
    disk_path: Path, delays: Delays, pipeline: Pipeline, link: Link, threads: int
) -> None:
    ahead = ReadAheadConfig(pieces=3, piece_bytes=4096) if pipeline == "overlap_full" else None
    storage = StorageConfig("test", str(disk_path), chunk_bytes=4096, queue_depth=3)
    variant = VariantConfig("test", 0, "direct", pipeline=pipeline)
    with KVStore(GEOMETRY, storage, copy_threads=threads, link=link, read_ahead=ahead) as store:
        store.bind(variant, 0)
        for seed in range(SCHEDULES):
            delays.shuffler.seed(seed)
            torch.manual_seed(seed)
            kept = generate(store, seed)
            assert device_bytes(store) == {tensor: rows.tobytes() for tensor, rows in kept.items()}, f"seed {seed}"
            store.crop(0)


def generate(store: KVStore, seed: int) -> dict[TensorId, torch.Tensor]:
    """Run a prompt and decode steps, compare all fetched tokens, and return the expected tensors."""
    prompt_tokens = 1 + seed % 4
    kept: dict[TensorId, torch.Tensor] = {}
    for layer in range(LAYERS):
        new = [torch.rand(prompt_tokens, 2, 1, 600).half() for _ in "kv"]
        store.prefill(layer, *new)
        kept |= {TensorId(layer, "k"): new[0], TensorId(layer, "v"): new[1]}
    for step in range(STEPS):
        store.begin("decode", seed * STEPS + step + 1)
        for layer in range(LAYERS):
            for kind, got in zip("kv", store.fetch(layer), strict=True):
                assert torch.equal(got, kept[TensorId(layer, kind)]), f"seed {seed}, step {step}, layer {layer} {kind}"  # type: ignore[arg-type]
            new = [torch.rand(1, 2, 1, 600).half() for _ in "kv"]
            store.append(layer, *new)
            for kind, rows in zip("kv", new, strict=True):
                tensor = TensorId(layer, kind)  # type: ignore[arg-type]
                kept[tensor] = torch.cat([kept[tensor], rows])
    store.synchronize()
    return {tensor: rows.view(torch.uint8).numpy() for tensor, rows in kept.items()}


def device_bytes(store: KVStore) -> dict[TensorId, bytes]:
    """Read the rows of each tensor from the device, without the code under test."""
    direct = store.paths["direct"]
    assert isinstance(direct, NvmeDirect)
    size_bytes = direct.lba_map.size_bytes
    with mmap.mmap(-1, size_bytes) as memory:
        assert os.preadv(direct.target.fd, [memory], direct.target.first_byte) == size_bytes
        content = bytes(memory)
    found = {}
    for tensor, extent in direct.lba_map.extents.items():
        start = extent.first_lba * 4096 - direct.target.first_byte
        found[tensor] = content[start : start + store.lengths[tensor.layer] * GEOMETRY.tensors[tensor].row_bytes]
    return found

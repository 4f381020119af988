"""Links: every byte arrives, and a paced link is never faster than stated. With a GPU, also the real link."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dualblade.config.device import DeviceConfig, LinkPace, ReadAheadConfig
from dualblade.config.run import VariantConfig
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import HostLink, Link, PacedLink, link_to, open_link
from dualblade.store import KVStore

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

SIZE_BYTES = 1 << 20


@pytest.fixture(params=["host", "paced", pytest.param("cuda", marks=needs_gpu)])
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    links = {
        "host": HostLink,
        "paced": lambda: PacedLink(LinkPace(gb_per_s=20.0, source="a test")),
        "cuda": lambda: link_to(torch.device("cuda")),
    }
    link = links[request.param]()
    yield link
    link.close()


def memory(link: Link) -> torch.device:
    return torch.device("cuda" if link.kind == "cuda" else "cpu")


def test_both_ways_bring_every_byte_of_any_view(link: Link) -> None:
    buffers = [PinnedBuffer(SIZE_BYTES) for _ in range(2)]
    link.pin(buffers)
    rows = torch.rand(4, 16, 8, 32, device=memory(link)).half()
    scattered = rows.permute(2, 0, 1, 3)  # [8, 4, 16, 32], as a model's K and V come
    down, up = (buffer.data[: rows.nbytes].view(torch.float16).view(scattered.shape) for buffer in buffers)
    link.start_down(down, scattered, link.compute_so_far())()
    assert torch.equal(down, scattered.cpu())
    up.copy_(down)
    arrived = torch.zeros_like(scattered, memory_format=torch.contiguous_format)
    link.start_up(arrived, up, link.compute_so_far())()
    assert torch.equal(arrived, scattered)


def test_a_paced_link_takes_at_least_its_time_for_all_threads_together() -> None:
    """Lower bounds hold on any machine, however slow."""
    link = PacedLink(LinkPace(gb_per_s=0.1, source="a test", latency_us=100))
    source, copies = torch.zeros(SIZE_BYTES, dtype=torch.uint8), 6
    start_s = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        for copied in [
            threads.submit(lambda: link.start_up(torch.empty_like(source), source, None)()) for _ in range(copies)
        ]:
            copied.result()
    assert time.monotonic() - start_s >= copies * (SIZE_BYTES / 0.1e9 + 100e-6)
    assert link.summary()["copies"] == copies


def test_a_link_in_proportion_to_the_storage_has_that_multiple_of_its_rate() -> None:
    pace = LinkPace(None, "a test", storage_ratio=0.5, storage_gb_per_s=0.2)
    link, source = PacedLink(pace), torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    start_s = time.monotonic()
    link.start_up(torch.empty_like(source), source, None)()
    assert time.monotonic() - start_s >= SIZE_BYTES / 0.1e9
    told = link.summary()
    assert (told["gb_per_s"], told["storage_ratio"], told["storage_gb_per_s"]) == (0.1, 0.5, 0.2)


def test_a_paced_link_gives_no_credit_for_idle_time() -> None:
    link = PacedLink(LinkPace(gb_per_s=0.1, source="a test"))
    source = torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    time.sleep(0.03)
    for _ in range(2):
        start_s = time.monotonic()
        link.start_up(torch.empty_like(source), source, None)()
        assert time.monotonic() - start_s >= SIZE_BYTES / 0.1e9
        time.sleep(0.03)


def test_a_link_faster_than_memory_says_so() -> None:
    link = PacedLink(LinkPace(gb_per_s=1e6, source="a test"))
    source = torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    link.start_up(torch.empty_like(source), source, None)()
    told = link.summary()
    assert told["overruns"] == 1 and told["overrun_s"] > 0 and told["emulated"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"device\.link=cuda needs a GPU"):
        open_link(DeviceConfig("cuda", "cuda"), torch.device("cuda"))


@needs_gpu
def test_a_host_link_does_not_lead_to_a_gpu() -> None:
    with pytest.raises(ConfigurationError, match="does not lead to memory on cuda"):
        open_link(DeviceConfig("host"), torch.device("cuda"))


@needs_gpu
def test_copies_follow_what_the_gpu_was_given_to_do() -> None:
    """Both directions: data that a long kernel still has to produce, and memory that it still has to read."""
    link = link_to(torch.device("cuda"))
    buffer = PinnedBuffer(SIZE_BYTES)
    link.pin([buffer])
    pinned = buffer.data.view(torch.float32)
    device = torch.zeros(SIZE_BYTES // 4, device="cuda")
    with ThreadPoolExecutor(1) as copy_thread:
        for turn in range(20):
            torch.cuda._sleep(20_000_000)
            device.fill_(turn)
            produced = link.compute_so_far()
            copy_thread.submit(lambda p=produced: link.start_down(pinned, device, p)()).result()
            assert bool((pinned == turn).all())
            torch.cuda._sleep(20_000_000)
            seen = device.clone()
            read = link.compute_so_far()
            pinned.fill_(-1)
            copy_thread.submit(lambda p=read: link.start_up(device, pinned, p)()).result()
            assert bool((seen == turn).all()) and bool((device == -1).all())
    link.close()


@needs_gpu
@pytest.mark.parametrize("pipeline", ["intra", "cross", "adaptive", "overlap_full"])
def test_a_store_on_a_gpu_gives_back_what_was_appended(disk_path: Path, pipeline: str) -> None:
    geometry = KVGeometry.uniform(4, 4, 64, batch_size=2, capacity_tokens=64)
    variant = VariantConfig("test", "50%", "direct", pipeline=pipeline)  # type: ignore[arg-type]
    storage = StorageConfig("test", str(disk_path), checksum=True)
    with KVStore(geometry, storage, device="cuda", read_ahead=ReadAheadConfig(4, 65536)) as store:
        store.bind(variant, geometry.working_set_bytes)
        kept = [[torch.rand(40, 2, 4, 64, device="cuda").half() for _ in "kv"] for _ in range(4)]
        for layer, new in enumerate(kept):
            store.prefill(layer, *new)
        for iteration in range(1, 11):
            store.begin("decode", iteration)
            for layer in range(4):
                for got, expected in zip(store.fetch(layer), kept[layer], strict=True):
                    assert torch.equal(got, expected)
                new = [torch.rand(1, 2, 4, 64, device="cuda").half() for _ in "kv"]
                store.append(layer, *new)
                kept[layer] = [torch.cat(pair) for pair in zip(kept[layer], new, strict=True)]

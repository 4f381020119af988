"""Where the time went in real replays of all four variants, held against clocks that the engine does not see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dualblade.config.device import DeviceConfig, GpuConfig, LinkPace
from dualblade.config.run import ModelConfig, RunConfig, WorkloadConfig
from dualblade.config.storage import StorageConfig
from dualblade.config.variants import VARIANTS
from dualblade.model.replay import Replay
from dualblade.pipeline.link import open_link
from dualblade.store import KVStore

TOLERANCE = 0.02  # of a phase's wall time
MODEL = ModelConfig("small", 6, 32, 32, head_dim=64, hidden_size=2048, intermediate_size=8192, mlp_matrices=2)
WORKLOAD = WorkloadConfig("small", batch_size=2, prompt_tokens=512, generated_tokens=5)
GPU = GpuConfig("slow", peak_tflops=20, memory_gb_per_s=20)
# Slower than the storage, so that there is something to wait for.
LINK = DeviceConfig("paced", "paced", pace=LinkPace(gb_per_s=0.5, source="a test"), gpu=GPU)


class Clocked(Replay):
    """A replay whose phases, and calls of the store within them, are timed from outside."""

    def __init__(self, store: KVStore, config: RunConfig) -> None:
        super().__init__(store, config)
        self.wall_s = {"prefill": 0.0, "decode": 0.0}
        self.called_s = {"prefill": 0.0, "decode": 0.0}
        self._phase = "prefill"
        for name in ("prefill", "append", "fetch", "synchronize"):
            setattr(store, name, self._timed(getattr(store, name)))
        self._inside = False

    def prefill(self, progress: Callable[[str, int, int], None]) -> None:
        start_s = time.perf_counter()
        super().prefill(progress)
        self.wall_s["prefill"] += time.perf_counter() - start_s

    def decode(self, iteration: int) -> None:
        self._phase = "decode"
        start_s = time.perf_counter()
        super().decode(iteration)
        self.wall_s["decode"] += time.perf_counter() - start_s

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            outermost, self._inside, start_s = not self._inside, True, time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                if outermost:
                    self._inside = False
                    self.called_s[self._phase] += time.perf_counter() - start_s

        return timed


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_parts_of_a_phase_add_up_to_its_time_on_another_clock(variant: str, disk_path: Path) -> None:
    config = RunConfig(VARIANTS[variant], MODEL, WORKLOAD, StorageConfig("file", str(disk_path)), LINK)
    geometry = config.geometry()
    with KVStore(geometry, config.storage, link=open_link(LINK, torch.device("cpu")), keep_log=True) as store:
        store.bind(config.variant, geometry.working_set_bytes // 2)
        replay = Clocked(store, config)
        phases = replay.run(lambda phase, done, of: None).breakdown(store.activity, store.operations)
    for phase, parts in phases.items():
        wall_s, called_s = replay.wall_s[phase], replay.called_s[phase]
        in_store_s = parts["storage_stall_s"] + parts["link_stall_s"] + parts["other_s"]
        assert min(parts.values()) >= 0
        assert parts["compute_s"] + in_store_s == pytest.approx(wall_s, rel=TOLERANCE)
        assert parts["wall_s"] == pytest.approx(wall_s, rel=TOLERANCE)
        assert in_store_s == pytest.approx(called_s, abs=TOLERANCE * wall_s)
    computed_s = {"prefill": replay.compute.prefill_layer_s, "decode": 4 * replay.compute.decode_layer_s}
    for phase, layer_s in computed_s.items():
        assert phases[phase]["compute_s"] >= MODEL.n_layers * layer_s > 0
    assert phases["decode"]["link_stall_s"] > 0

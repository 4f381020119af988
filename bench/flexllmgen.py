"""FlexLLMGen's own disk path on the shapes of a run, without a model or a GPU: `python -m bench.flexllmgen RUN_DIR`.

A peer of the engine: it takes the same config.yaml, speaks the same protocol, and leaves a result.json with the same
names. Its disk device, tensors, copy threads and relay buffers are those of the package; what CUDA would do is done on
the host. It is driven in the order of the package's overlapped loop for a single batch, where attention and MLP are
layers of their own: while a layer computes its MLP, its new rows are stored and the next layer's cache is loaded, and a
barrier ends the step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from dualblade.config.run import RunConfig
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.proc import read_table
from dualblade.run.run_files import RunFile


def main() -> None:
    """Allocate and touch everything, wait for the limit, then prefill and decode."""
    run_dir = Path(sys.argv[1])
    config = RunConfig.load(run_dir / RunFile.CONFIG)
    torch.set_num_threads(1)
    _do_without_cuda(config.geometry().largest_tensor_bytes)
    peer = Peer(config)
    _say("ready")
    if not sys.stdin.readline():
        return
    peer.open_cache()
    prefill_s = peer.prefill()
    decode = [peer.decode(iteration) for iteration in range(1, config.iterations + 1)]
    peer.close()
    result = {
        "prefill_s": prefill_s,
        "decode_s": [seconds for seconds, _ in decode],
        "hit_rate": {"decode_per_iteration": [hit_rate for _, hit_rate in decode]},
    }
    (run_dir / RunFile.RESULT).write_text(json.dumps(result))
    _say("done")


class Peer:
    """The package's disk with one (K, V) pair for each layer, beside a device that is host memory."""

    def __init__(self, config: RunConfig) -> None:
        import flexgen.pytorch_backend as flexgen  # type: ignore[import-not-found]

        flexgen.fix_recursive_import()
        self._flexgen = flexgen
        self._config = config
        self._geometry: KVGeometry = config.geometry()
        batch, heads, dim = self._geometry.tensors[TensorId(0, "k")].row_shape
        self._columns = slice(0, batch * heads)
        self._gpu = _device_on_host(flexgen, self._geometry.largest_tensor_bytes)
        self._disk = flexgen.TorchDisk(config.storage.directory)
        self._prompt = flexgen.TorchTensor.create_from_torch(
            torch.rand(config.workload.prompt_tokens, batch * heads, dim).half(), self._gpu
        )
        self._row = flexgen.TorchTensor.create_from_torch(self._prompt.data[:1].clone(), self._gpu)
        self._pairs: list[tuple[Any, Any]] = []

    def open_cache(self) -> None:
        """One file for each tensor."""
        batch, heads, dim = self._geometry.tensors[TensorId(0, "k")].row_shape
        model = SimpleNamespace(n_head=heads, input_dim=heads * dim)
        task = SimpleNamespace(prompt_len=self._config.workload.prompt_tokens, gen_len=self._config.iterations + 1)
        policy = SimpleNamespace(gpu_batch_size=batch)
        self._pairs = [self._disk.init_cache_one_gpu_batch(model, task, policy) for _ in range(self._geometry.n_layers)]

    def prefill(self) -> float:
        """Seconds until the whole prompt is in the files, layer after layer."""
        start = time.perf_counter()
        for pair in self._pairs:
            self._store(pair, range(self._config.workload.prompt_tokens), self._prompt)
            self._disk.synchronize()
        return time.perf_counter() - start

    def decode(self, iteration: int) -> tuple[float, float]:
        """Seconds of one decode step, and the share of the cache it read that the disk did not have to deliver."""
        length = self._config.workload.prompt_tokens + iteration - 1
        before_bytes, start = _read_bytes(), time.perf_counter()
        self._load(self._pairs[0], length)
        self._disk.synchronize()
        for pair, following in itertools.zip_longest(self._pairs, self._pairs[1:]):
            if following is not None:
                self._load(following, length)
            self._store(pair, range(length, length + 1), self._row)
            self._disk.synchronize()
        seconds = time.perf_counter() - start
        asked_bytes = sum(length * self._geometry.tensors[tensor].row_bytes for tensor in self._geometry.tensors)
        return seconds, 1 - (_read_bytes() - before_bytes) / asked_bytes

    def close(self) -> None:
        self._disk.close_copy_threads()

    def _load(self, pair: tuple[Any, Any], length: int) -> None:
        for tensor in pair:
            tensor.smart_copy(self._gpu, (slice(0, length), self._columns))

    def _store(self, pair: tuple[Any, Any], rows: range, source: Any) -> None:
        for tensor in pair:
            self._flexgen.general_copy(tensor, (slice(rows.start, rows.stop), self._columns), source, None)


def _device_on_host(flexgen: Any, tensor_bytes: int) -> Any:
    """A device whose memory is the host's, from a pool: CUDA's allocator gives warm memory too, malloc does not."""
    pool = itertools.cycle([torch.zeros(tensor_bytes // 2, dtype=torch.float16) for _ in range(4)])

    def allocate(shape: tuple[int, ...], dtype: type, pin_memory: object = None, name: str | None = None) -> Any:
        data = next(pool)[: int(np.prod(shape))].view(shape)
        return flexgen.TorchTensor.create_from_torch(data, device, name=name)

    device = flexgen.TorchDevice.__new__(flexgen.TorchDevice)
    device.name, device.dev, device.device_type = "cuda:0", torch.device("cpu"), flexgen.DeviceType.CUDA
    device.links, device.compressed_device, device.allocate = {}, None, allocate
    return device


def _do_without_cuda(tensor_bytes: int) -> None:
    """Streams become nothing, and pinned memory becomes memory of which one tensor's worth has been touched."""

    plain_empty = torch.empty

    def empty(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        memory: torch.Tensor = plain_empty(*shape, **options)
        if pin_memory:
            memory.view(-1)[: tensor_bytes // memory.element_size()].zero_()
        return memory

    mock.patch("torch.empty", empty).start()
    mock.patch.multiple(
        "torch.cuda",
        set_device=lambda device: None,
        Stream=lambda: None,
        stream=lambda stream: contextlib.nullcontext(),
    ).start()


def _read_bytes() -> int:
    """Bytes that the kernel accounted to this process as read from storage (proc(5), io)."""
    return read_table(Path("/proc/self/io"))["read_bytes"]


def _say(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


if __name__ == "__main__":
    main()

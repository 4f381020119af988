"""A replay does to storage what the model does: the same tensor-level operations in the same order."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from dualblade.config.run import RunConfig
from dualblade.config.variants import VARIANTS
from dualblade.model.generation import LoadedModel
from dualblade.model.replay import Replay
from dualblade.record.io_log import Operation
from dualblade.store import KVStore
from tests.support.tiny_models import save_tiny_llama, tiny_llama_run


class Step(NamedTuple):
    """An operation without its times."""

    phase: str
    iteration: int
    layer: int
    kind: str
    op: str
    path: str
    first_row: int
    rows: int
    bytes: int


def steps_by_thread(operations: list[Operation]) -> dict[int, list[Step]]:
    """Operations of each copy thread in their order, which is the order of submission."""
    threads = defaultdict(list)
    for operation in operations:
        threads[operation.thread].append(Step(*(getattr(operation, name) for name in Step._fields)))
    return dict(threads)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny_llama(tmp_path_factory.mktemp("tiny_llama"))
    (folder / "prompts.txt").write_text("A page cache keeps\nOnce upon a time there was\n")
    return folder


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_operations_of_a_model_are_those_of_its_replay(
    weights: Path, disk_path: Path, variant: str, threads: int
) -> None:
    config = RunConfig.from_mapping(tiny_llama_run(weights, disk_path))
    model = LoadedModel(config)
    assert model.geometry == config.geometry()
    passing_bytes = threads * model.geometry.largest_tensor_bytes if variant == "cachepolicy_only" else 0
    b_pc_bytes = int(0.6 * model.geometry.working_set_bytes + passing_bytes / 0.95)
    logs = []
    for start in (model.start, Replay):
        with KVStore(model.geometry, config.storage, copy_threads=threads, keep_log=True) as store:
            store.bind(VARIANTS[variant], b_pc_bytes)
            start(store, config).run(ignore)
            logs.append(steps_by_thread(store.operations))
    by_model, by_replay = logs
    assert set(by_model) == set(range(2 * threads))  # those that read, and those that write rows
    assert by_model == by_replay
    iterations = {step.iteration for steps in by_model.values() for step in steps}
    assert iterations == set(range(config.iterations + 2))  # prefill, decode, and what was read ahead for one more


def ignore(phase: str, done: int, of: int) -> None:
    """Nobody watches the progress."""


@pytest.mark.parametrize("chunk_tokens", [8, 23])
def test_a_prompt_in_chunks_is_all_prefill(weights: Path, disk_path: Path, chunk_tokens: int) -> None:
    """Chunks of 8, 8 and 8 tokens, or of 23 and 1: only what comes after them, or is read ahead for it, decodes."""
    config = RunConfig.from_mapping(tiny_llama_run(weights, disk_path))
    prompt_tokens = config.workload.prompt_tokens
    model = LoadedModel(config)
    model.weights.generation_config.prefill_chunk_size = chunk_tokens
    with KVStore(model.geometry, config.storage, keep_log=True) as store:
        store.bind(VARIANTS["dual_blade"], 0)
        model.start(store, config).run(ignore)
        operations = store.operations
    for operation in operations:
        tokens = operation.first_row + operation.rows  # written so far, or read
        past = tokens if operation.op == "read" else tokens - 1
        assert operation.iteration == max(0, past - prompt_tokens + 1), operation
    assert {operation.phase for operation in operations if operation.iteration == 0} == {"prefill"}

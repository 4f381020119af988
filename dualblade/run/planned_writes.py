"""The writes that a run would make and where, found by the checks of a real run and without writing anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from dualblade.config.run import RunConfig
from dualblade.config.storage import StorageConfig
from dualblade.geometry import TensorId
from dualblade.plan.extents import bind
from dualblade.plan.residency import knob_bytes, plan_residency
from dualblade.targets.block import BlockTarget
from dualblade.targets.claim import BlockClaim
from dualblade.targets.file import check_folder

_FREE = "  free: nothing mounted, swapped to, stacked or stored on it, and no other run uses these blocks"


def writes_of_run(run: RunConfig, budget_bytes: int) -> Iterator[str]:
    """Yield lines on the writes of a run whose page-cache budget is about `budget_bytes`.

    Raises:
        StorageError, ConfigurationError: the run would be refused, and why.
    """
    geometry, storage = run.geometry(), run.storage
    direct = _direct_layers(run, budget_bytes)
    tensors = [TensorId(layer, kind) for layer in direct for kind in ("k", "v")]
    extents = bind([(tensor, geometry.tensors[tensor].size_bytes) for tensor in tensors], storage.lba_bytes)
    file_bytes = sum(geometry.kpu_bytes[layer] for layer in range(geometry.n_layers) if layer not in direct)
    raw_file = bool(direct) and storage.backend == "file"
    check_folder(storage, file_bytes + (_span(storage, extents.size_bytes).stop if raw_file else 0), direct=raw_file)
    yield f"{run.variant.name}: {geometry.n_layers} layers, {len(direct)} of them by the direct path"
    yield f"  files in {storage.directory}: {file_bytes:,} bytes, removed at the end"
    if direct:
        how = f"in {len(extents.extents)} extents back to back"
        yield from raw_writes(storage, extents.size_bytes, storage.chunk_bytes, how)
    else:
        yield "  nothing would be written raw"


def _direct_layers(run: RunConfig, budget_bytes: int) -> list[int]:
    geometry = run.geometry()
    in_flight_bytes = run.device.copy_threads * geometry.largest_tensor_bytes
    kpu_bytes = geometry.kpu_bytes
    knob = knob_bytes(run.variant, budget_bytes, in_flight_bytes, kpu_bytes)
    layers = plan_residency(kpu_bytes, knob, run.variant.overflow).layers
    return [layer for layer, path in enumerate(layers) if path == "direct"]


def raw_writes(storage: StorageConfig, size_bytes: int, chunk_bytes: int, how: str) -> Iterator[str]:
    """Yield lines on the first `size_bytes` that the storage grants, written in chunks; `how` ends a sentence on them.

    Raises:
        StorageError, ConfigurationError: they would be refused, and why.
    """
    match storage.backend:
        case "nvme":
            yield from _nvme(storage, size_bytes, chunk_bytes, how)
        case "block":
            yield from _block(storage, size_bytes, how)
        case "file":
            yield from _file(storage, size_bytes)
        case other:
            assert_never(other)


def _file(storage: StorageConfig, size_bytes: int) -> Iterator[str]:
    yield f"  would write: {_words(_span(storage, size_bytes))} of a file in {storage.directory}, by O_DIRECT"


def _nvme(storage: StorageConfig, size_bytes: int, chunk_bytes: int, how: str) -> Iterator[str]:
    claim = BlockClaim(storage)
    try:
        blocks, controller = claim.first_blocks(size_bytes), claim.identity.controller
        most_bytes = min(chunk_bytes, claim.identity.most_chunk_bytes)
        yield f"  device: {claim.device}, {controller.model}, serial {controller.serial}"
        yield f"  granted: LBAs {claim.blocks.start:,} to {claim.blocks.stop - 1:,}, {storage.lba_bytes} bytes each"
        yield (
            f"  would overwrite: LBAs {blocks.start:,} to {blocks.stop - 1:,}, {size_bytes:,} bytes {how}, by commands "
            f"of at most {most_bytes:,} bytes"
        )
        yield "  afterwards: these blocks are deallocated (Dataset Management), no other is touched"
        for _, left in claim.left_behind():
            yield f"  before: LBAs {left.start:,} to {left.stop - 1:,}, which a killed run left, are deallocated"
        yield _FREE
    finally:
        claim.close()


def _block(storage: StorageConfig, size_bytes: int, how: str) -> Iterator[str]:
    target = BlockTarget(storage, size_bytes)
    try:
        yield f"  device: {target}, serial {storage.serial}"
        yield f"  would overwrite: {_words(_span(storage, size_bytes))} of it, by O_DIRECT, {how}"
        yield "  afterwards: these bytes are discarded where the device can, no other is touched"
        yield _FREE
    finally:
        target.release()


def _span(storage: StorageConfig, size_bytes: int) -> range:
    """Bytes of the file or device in which the extents lie."""
    first_byte = storage.first_lba * storage.lba_bytes
    return range(first_byte, first_byte + size_bytes)


def _words(span: range) -> str:
    return f"bytes {span.start:,} to {span.stop - 1:,}"

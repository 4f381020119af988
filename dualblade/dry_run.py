"""What a run would write where, found without writing anything: every check of a real run is made."""

from __future__ import annotations

from collections.abc import Iterator

from dualblade.claim import Claim
from dualblade.config import RunConfig
from dualblade.extents import LbaMap, bind
from dualblade.geometry import TensorId
from dualblade.residency import knob_bytes, plan_residency


def describe(run: RunConfig, budget_bytes: int) -> Iterator[str]:
    """Lines for a run whose page-cache budget is about `budget_bytes`.

    Raises:
        StorageError, ConfigurationError: the run would be refused, and why.
    """
    geometry, storage = run.geometry(), run.storage
    in_flight_bytes = run.device.copy_threads * geometry.largest_tensor_bytes
    kpu_bytes = [geometry.kpu_bytes(layer) for layer in range(geometry.n_layers)]
    knob = knob_bytes(run.variant, budget_bytes, in_flight_bytes, kpu_bytes)
    layers = plan_residency(kpu_bytes, knob, run.variant.overflow).layers
    direct = [layer for layer, path in enumerate(layers) if path == "direct"]
    file_bytes = sum(kpu_bytes) - sum(kpu_bytes[layer] for layer in direct)
    yield f"{run.variant.name}: {geometry.n_layers} layers, {len(direct)} of them by the direct path"
    yield f"  files in {storage.directory}: {file_bytes:,} bytes, removed at the end"
    if not direct:
        yield "  nothing would be written raw"
        return
    tensors = [TensorId(layer, kind) for layer in direct for kind in ("k", "v")]
    extents = bind([(tensor, geometry.tensor_bytes(tensor)) for tensor in tensors], storage.lba_bytes)
    yield from _nvme(run, extents) if storage.backend == "nvme" else _other(run, extents)


def _nvme(run: RunConfig, extents: LbaMap) -> Iterator[str]:
    claim = Claim(run.storage)
    try:
        blocks, controller = claim.first_blocks(extents.size_bytes), claim.identity.controller
        chunk_bytes = min(run.storage.chunk_bytes, claim.identity.most_chunk_bytes)
        yield f"  device: {claim.device}, {controller.model}, serial {controller.serial}"
        yield f"  granted: LBAs {claim.blocks.start:,} to {claim.blocks.stop - 1:,}, {run.storage.lba_bytes} bytes each"
        yield (
            f"  would overwrite: LBAs {blocks.start:,} to {blocks.stop - 1:,}, {extents.size_bytes:,} bytes in "
            f"{len(extents.extents)} extents back to back, by commands of at most {chunk_bytes:,} bytes"
        )
        yield "  afterwards: these blocks are deallocated (Dataset Management), no other is touched"
        for _, left in claim.left_behind():
            yield f"  before: LBAs {left.start:,} to {left.stop - 1:,}, which a killed run left, are deallocated"
        yield "  free: nothing mounted, swapped to, stacked or stored on it, and no other run uses these blocks"
    finally:
        claim.close()


def _other(run: RunConfig, extents: LbaMap) -> Iterator[str]:
    storage = run.storage
    where = f"a file in {storage.directory}" if storage.backend == "file" else f"{storage.block_device}"
    first_byte = storage.first_lba * storage.lba_bytes
    yield f"  would write: bytes {first_byte:,} to {first_byte + extents.size_bytes - 1:,} of {where}, by O_DIRECT"

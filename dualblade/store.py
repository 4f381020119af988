"""KVStore, the KV cache of one model: it puts the copy threads, device slots, plan and paths together."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType

import torch

from dualblade.checks import check_append, check_fetch, check_layer
from dualblade.config.device import ReadAheadConfig
from dualblade.config.run import VariantConfig
from dualblade.config.sections import require
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, IntegrityError, StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.fiemap import Placement
from dualblade.paths.base import KVPath, Moment, Phase, QueueingPath, Transfer, Worker
from dualblade.paths.open import open_paths
from dualblade.paths.pinned import PinnedBuffer, PinnedState, pinned_state, warn_unless_locked
from dualblade.pipeline.buffers import buffer_bytes
from dualblade.pipeline.copy_threads import CopyThreads
from dualblade.pipeline.link import Link, link_to
from dualblade.pipeline.policy import Fixed, Policy, Strategy, policy_of
from dualblade.pipeline.read_ahead import ReadAhead, open_read_ahead
from dualblade.pipeline.slot import Slot, open_slots
from dualblade.pipeline.threads import first_error
from dualblade.plan.budget import refuse_unless_free
from dualblade.plan.residency import Plan, knob_bytes, plan_residency
from dualblade.record.io_log import Operation
from dualblade.record.ledger import Ledger
from dualblade.record.phases import Activity

# Stores that may be queued before `append` waits: K and V of two layers, so that they overlap with compute.
QUEUED_STORES = 4


class KVStore:
    """The KV cache of one model on storage.

    The constructor allocates and touches all memory that the store will ever need, except for the records that
    `keep_log` asks for: `operations` and `activity` grow with every token. `bind` then plans residency within the
    budget that is left, and reserves the space. Layers are used in order: `fetch(layer)` returns the tokens so far and
    starts to load the next layer, `append(layer, k, v)` adds new tokens.

    Raises:
        BudgetError: there is not enough free memory for the buffers.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        storage: StorageConfig,
        *,
        device: torch.device | str = "cpu",
        copy_threads: int = 2,
        link: Link | None = None,
        read_ahead: ReadAheadConfig | None = None,
        keep_log: bool = False,
    ) -> None:
        require(copy_threads >= 1, f"copy_threads={copy_threads}", "1 or more")
        self.geometry = geometry
        self.storage = storage
        self.device = torch.device(device)
        self.link = link or link_to(self.device)
        self._moment = Moment()
        self._dtype = getattr(torch, geometry.dtype)
        self.activity = Activity(keep=keep_log)
        self.policy: Policy = Fixed("none")
        self.lengths = [0] * geometry.n_layers
        refuse_unless_free(buffer_bytes(geometry, storage.lba_bytes, copy_threads, self.link, self.device, read_ahead))
        self.plan: Plan | None = None
        self.paths: dict[str, KVPath] = {}
        self._ledger = Ledger(geometry, checksum=storage.checksum, keep_log=keep_log)
        self._stores: deque[Future[None]] = deque()
        with contextlib.ExitStack() as undo:
            undo.callback(self.link.close)
            self._threads = CopyThreads(geometry, self.link, self._ledger, copy_threads, storage.lba_bytes)
            undo.callback(self._threads.close)
            self._ahead: ReadAhead | None = None
            if read_ahead:
                self._ahead = open_read_ahead(read_ahead, self.link, self._ledger, len(self._threads.workers))
                undo.callback(self._ahead.close)
            self._slots = open_slots(geometry, storage.lba_bytes, self.device, shared=self.link.shares_memory)
            warn_unless_locked(self._buffers)
            undo.pop_all()
        self._current = self._slots[0]

    def bind(self, variant: VariantConfig, b_pc_bytes: int) -> Plan:
        """Plan residency within a page-cache budget, bind each group to files or LBAs, and reserve their space.

        Raises:
            ConfigurationError: the variant does not fit this store, or `bind` was called before.
            StorageError: there is no space, no direct I/O or no such device.
        """
        if self.plan:
            raise ConfigurationError("bind was called before, and a store plans once; make a new one for another plan")
        geometry = self.geometry
        self.policy = policy_of(variant)
        if variant.pipeline == "overlap_full" and not self._ahead:
            raise ConfigurationError(
                "variant.pipeline=overlap_full reads ahead through pinned memory that this store was made without; "
                "make it with read_ahead=ReadAheadConfig()"
            )
        in_flight_bytes = self._threads.n_threads * geometry.largest_tensor_bytes
        knob = knob_bytes(variant, b_pc_bytes, in_flight_bytes, geometry.kpu_bytes)
        plan = plan_residency(geometry.kpu_bytes, knob, variant.overflow)
        self.paths = open_paths(plan, geometry, self.storage, self._workers)
        self.plan = plan
        return plan

    def begin(self, phase: Phase, iteration: int = 0, *, more_prompt: bool = False) -> None:
        """Begin a forward pass: prefill, or decode iteration 1, 2, ...; operations from now on belong to it.

        `more_prompt`: the prompt comes in chunks, and this one is not the last.
        """
        self._moment = Moment(phase, iteration, more_prompt)

    def prefill(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store a layer's first tokens, `[T, B, H, D]` each."""
        check_layer(self.geometry, layer)
        if self.lengths[layer]:
            raise ConfigurationError(
                f"layer {layer} already holds {self.lengths[layer]} tokens, so it cannot be prefilled; "
                "use append, or crop(0) to start over"
            )
        self.append(layer, k, v)

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store a layer's next tokens, `[T, B, H, D]` each, of any strides; they must not change until stored.

        Raises:
            ConfigurationError: the tokens, or their number, do not fit the cache.
            StorageError: an earlier store failed.
        """
        with self.activity.call():
            rows = check_append(self.geometry, self.device, layer, self.lengths, k, v)
            path, computed = self._path(layer), self.link.compute_so_far()
            self.lengths[layer] = rows.stop
            for tensor, source in ((TensorId(layer, "k"), k), (TensorId(layer, "v"), v)):
                transfer = Transfer(path, tensor, rows, source, self._moment, computed)
                self._stores.append(self._threads.store(transfer))
            with self.activity.waiting_for("write"):
                while len(self._stores) > QUEUED_STORES:
                    self._stores.popleft().result()

    def prefetch(self, layer: int) -> None:
        """Start to load a layer's tokens into the slot that is not in use, unless it has none or is loading already."""
        with self.activity.call():
            check_layer(self.geometry, layer)
            self._prefetch(layer)

    def fetch(self, layer: int, room_tokens: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of a layer's visible tokens, on the device, `[T + room_tokens, B, H, D]` each.

        The last `room_tokens` rows are for the caller to fill. The memory is valid until the next `fetch`. The next
        layer starts to load before this call waits, so that storage works while the caller computes.

        Raises:
            ConfigurationError: the layer has no tokens, or they are more than the cache was made for.
            StorageError, IntegrityError: a transfer of this layer failed.
        """
        with self.activity.call():
            rows = check_fetch(self.geometry, layer, self.lengths, room_tokens)
            slot = self._find(layer, rows) or self._load(layer, rows, self._spare())
            self._current = slot
            following = (layer + 1) % self.geometry.n_layers  # after the last layer, layer 0 for the next token
            if following != layer:
                self._prefetch(following)
            self._await(slot)
            k, v = slot.tensors
            n_rows = len(rows) + room_tokens
            return k[:n_rows], v[:n_rows]

    def _await(self, slot: Slot) -> None:
        try:
            with self.activity.waiting_for("read"):
                slot.wait()
        except Exception as error:
            slot.empty()  # raise this error once; the other layers can still be read
            if isinstance(error, IntegrityError):
                self.synchronize()  # a failed store may be the reason: then raise its error
            raise

    def crop(self, n_tokens: int) -> None:
        """Forget all tokens from position `n_tokens` on, in all layers."""
        require(n_tokens >= 0, f"n_tokens={n_tokens}", "0 or more")
        self.synchronize()
        crops = [
            self._threads.crop(self._path(tensor.layer), tensor, n_tokens)
            for tensor in self.geometry.tensors
            if self.lengths[tensor.layer] > n_tokens
        ]
        for crop in crops:
            crop.result()
        self.lengths = [min(length, n_tokens) for length in self.lengths]
        for slot in self._slots:
            slot.layer = None

    def synchronize(self) -> None:
        """Wait until all queued work has ended; raise the first error, once."""
        with self.activity.call():
            with self.activity.waiting_for("write"):
                write_error = first_error(self._stores)
                self._stores.clear()
            with self.activity.waiting_for("read"):
                read_errors = [slot.settle() for slot in self._slots]
        if error := next(filter(None, [write_error, *read_errors]), None):
            raise error

    @property
    def pinned(self) -> PinnedState:
        return pinned_state(self._buffers)

    @property
    def _workers(self) -> list[Worker]:
        return [*self._threads.workers, *([self._ahead.worker] if self._ahead else [])]

    @property
    def _buffers(self) -> list[PinnedBuffer]:
        return [worker.buffer for worker in self._workers] + [b for slot in self._slots for b in slot.buffers]

    def placement(self, tensor: TensorId) -> tuple[str, Placement]:
        """Return the name of a tensor's path, and where on the device it lies."""
        path = self._path(tensor.layer)
        return path.name, path.placement(tensor)

    @property
    def operations(self) -> list[Operation]:
        """All operations so far, in the order of completion; empty without `keep_log`."""
        return self._ledger.operations

    def close(self) -> None:
        """End the copy threads and release all space; safe to call twice.

        Raises:
            StorageError: a device did not deallocate its blocks.
        """
        self._threads.close()
        if self._ahead:
            self._ahead.close()
        self.link.close()
        with contextlib.ExitStack() as stack:
            while self.paths:
                _, path = self.paths.popitem()
                stack.callback(path.close)
        self._slots.clear()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:  # else the earlier error counts
                raise

    def _find(self, layer: int, rows: range) -> Slot | None:
        """Return the slot that holds, or will hold, these rows of the layer."""
        for slot in self._slots:
            if slot.layer == layer and slot.rows == rows:
                return slot
        return None

    def _spare(self) -> Slot:
        return self._slots[-1] if self._current is self._slots[0] else self._slots[0]

    def _prefetch(self, layer: int) -> None:
        rows = self.geometry.visible_rows(layer, self.lengths[layer])
        if rows and self._find(layer, rows) is None:
            self._load(layer, rows, self._spare())

    def _load(self, layer: int, rows: range, slot: Slot) -> Slot:
        """Start to load rows of a layer into a slot."""
        slot.empty()
        path, computed = self._path(layer), self.link.compute_so_far()
        moment = self._moment if layer >= (self._current.layer or 0) else self._moment.next()
        tensors, transfers = [], []
        for which, tensor in enumerate((TensorId(layer, "k"), TensorId(layer, "v"))):
            lead_bytes = path.lead_bytes(tensor, rows.start) if slot.buffers else 0
            view = slot.view(which, lead_bytes, self.geometry.tensors[tensor], self._dtype)
            shared = slot.buffers[which] if slot.buffers else None
            tensors.append(view)
            transfers.append(Transfer(path, tensor, rows, view[: len(rows)], moment, computed, shared))
        slot.layer, slot.rows, slot.tensors = layer, rows, tensors
        strategy = self.policy.strategy(path.name, moment)
        before = () if strategy == "overlap_full" or slot is self._current else self._current.loads
        slot.loads = self._start(transfers, strategy, before)
        self.policy.watch(transfers, slot.loads, before)
        return slot

    def _start(
        self, transfers: Sequence[Transfer], strategy: Strategy, before: Sequence[Future[None]]
    ) -> list[Future[None]]:
        """Load K and V of a layer after the loads `before` them; reads that cannot run ahead use the copy threads."""
        if self._ahead and strategy == "overlap_full" and isinstance(transfers[0].path, QueueingPath):
            return [self._ahead.load(transfer, self._threads.last_write(transfer.tensor)) for transfer in transfers]
        return self._threads.load(transfers, before, stagger=strategy == "cross")

    def _path(self, layer: int) -> KVPath:
        path = self.paths.get(self.plan.layers[layer]) if self.plan else None
        if path is None:
            raise ConfigurationError("the store is not bound to storage, or closed again; make one and call bind first")
        return path

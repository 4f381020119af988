"""KVStore, the composition root: the copy threads, device buffers, plan and paths of one KV cache."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType

import torch

from dualblade.checks import check_fetch, check_layer, check_tokens, next_rows
from dualblade.config.device import ReadAheadConfig
from dualblade.config.run import VariantConfig
from dualblade.config.sections import require
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, IntegrityError, StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.fiemap import Placement
from dualblade.paths.base import Moment, Path, Queueing, Transfer
from dualblade.paths.open import open_paths
from dualblade.paths.pinned import PinnedBuffer, PinnedState, pinned_state, warn_unless_locked
from dualblade.pipeline.buffers import buffer_bytes
from dualblade.pipeline.copy_threads import CopyThreads
from dualblade.pipeline.futures import finish
from dualblade.pipeline.link import Link, link_to
from dualblade.pipeline.policy import Fixed, Policy, Strategy, policy, watch
from dualblade.pipeline.read_ahead import ReadAhead, open_read_ahead
from dualblade.pipeline.slot import Slot, open_slots
from dualblade.plan.budget import refuse_unless_free
from dualblade.plan.residency import Plan, knob_bytes, plan_residency
from dualblade.record.io_log import Operation
from dualblade.record.ledger import Ledger
from dualblade.record.phases import Activity

# Stores that may be queued before `append` waits: K and V of the layer before, so that they overlap with compute.
QUEUED_STORES = 4


class KVStore:
    """The KV cache of one model on storage.

    Making it allocates and touches all memory it will ever need, except for what `keep_log` asks for: `operations` and
    `activity`, which grow with every token. `bind` then plans residency within the budget that is left, and reserves
    the space. Layers are used in order: `fetch(layer)` gives the tokens so far and starts loading the next layer,
    `append(layer, k, v)` adds new ones.

    Raises:
        BudgetError: the memory that the buffers take is not free.
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
        self.moment = Moment()
        self.activity = Activity(keep=keep_log)
        self.policy: Policy = Fixed("none")
        self.lengths = [0] * geometry.n_layers
        refuse_unless_free(buffer_bytes(geometry, storage.lba_bytes, copy_threads, self.link, self.device, read_ahead))
        self.plan: Plan | None = None
        self.paths: dict[str, Path] = {}
        self._ledger = Ledger(geometry, checksum=storage.checksum, keep_log=keep_log)
        self._stores: deque[Future[None]] = deque()
        with contextlib.ExitStack() as undo:
            undo.callback(self.link.close)
            self._threads = CopyThreads(geometry, self.link, self._ledger, copy_threads, storage.lba_bytes)
            undo.callback(self._threads.close)
            self._ahead: ReadAhead | None = None
            if read_ahead:
                self._ahead = open_read_ahead(read_ahead, self.link, self._ledger, len(self._threads.buffers))
                undo.callback(self._ahead.close)
            self._slots = open_slots(geometry, storage.lba_bytes, self.device, shared=self.link.shares_memory)
            warn_unless_locked(self._buffers)
            undo.pop_all()
        self._current = self._slots[0]

    def bind(self, variant: VariantConfig, b_pc_bytes: int, rank: Callable[[int], float] = lambda layer: layer) -> Plan:
        """Plan residency within a page-cache budget, bind each group to files or LBAs, and reserve their space.

        Raises:
            ConfigurationError: the variant does not go with this store, or was given one before.
            StorageError: the space, direct I/O or the device is not there.
        """
        if self.plan:
            raise ConfigurationError("bind was called before, and a store plans once; make a new one for another plan")
        geometry = self.geometry
        self.policy = policy(variant)
        if variant.pipeline == "overlap_full" and not self._ahead:
            raise ConfigurationError(
                "variant.pipeline=overlap_full reads ahead through pinned memory that this store was made without; "
                "make it with read_ahead=ReadAheadConfig()"
            )
        kpu_bytes = geometry.kpu_bytes
        in_flight_bytes = self._threads.n_threads * geometry.largest_tensor_bytes
        knob = knob_bytes(variant, b_pc_bytes, in_flight_bytes, kpu_bytes)
        plan = plan_residency(kpu_bytes, knob, variant.overflow, rank)
        self.paths = open_paths(plan, geometry, self.storage, self._threads.buffers, self._ahead)
        self.plan = plan
        return plan

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
            ConfigurationError: the tokens, or their number, are not what the cache was made for.
            StorageError: an earlier store failed.
        """
        with self.activity.call():
            tokens = check_tokens(self.geometry, self.device, layer, k, v)
            rows = next_rows(self.geometry, self.lengths[layer], len(k))
            computed = self.link.compute_so_far()
            transfers = [Transfer(self._path(t), t, rows, source, self.moment, computed) for t, source in tokens]
            self.lengths[layer] = rows.stop
            self._stores.extend(self._threads.store(transfer) for transfer in transfers)
            with self.activity.waiting_for("write"):
                while len(self._stores) > QUEUED_STORES:
                    self._stores.popleft().result()

    def prefetch(self, layer: int) -> None:
        """Start loading a layer's tokens, if any, into the slot that is not in use, unless they are on their way."""
        with self.activity.call():
            check_layer(self.geometry, layer)
            if self.geometry.visible_rows(layer, self.lengths[layer]) and self._find(layer) is None:
                self._load(layer, self._spare())

    def fetch(self, layer: int, room_tokens: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a layer's visible tokens so far, on the device, `[T + room_tokens, B, H, D]` each.

        The last `room_tokens` rows are the caller's to fill. The memory is valid until the next `fetch`; the
        next layer starts loading before this call waits, so storage works while the caller computes.

        Raises:
            ConfigurationError: the layer has no tokens, or they are more than the cache was made for.
            StorageError, IntegrityError: a transfer of this layer failed.
        """
        with self.activity.call():
            check_fetch(self.geometry, layer, self.lengths, room_tokens)
            slot = self._find(layer)
            if slot is None:
                slot = self._spare()
                self._load(layer, slot)
            self._current = slot
            self._prefetch_after(layer)
            self._await(slot)
            rows = len(slot.rows) + room_tokens
            return self._view(slot, TensorId(layer, "k"), rows), self._view(slot, TensorId(layer, "v"), rows)

    def _await(self, slot: Slot) -> None:
        try:
            with self.activity.waiting_for("read"):
                slot.wait()
        except Exception as error:
            slot.empty()  # it is raised here, once; the other layers can still be read
            if isinstance(error, IntegrityError):
                self.synchronize()  # raises the failed store, when that is why there is nothing to read
            raise

    def _prefetch_after(self, layer: int) -> None:
        """Layer 0 comes again after the last one: it is read for the next token."""
        following = (layer + 1) % self.geometry.n_layers
        if following != layer:
            self.prefetch(following)

    def crop(self, n_tokens: int) -> None:
        """Forget every token from position `n_tokens` on, in all layers."""
        require(n_tokens >= 0, f"n_tokens={n_tokens}", "0 or more")
        self.synchronize()
        crops = [
            self._threads.crop(self._path(tensor), tensor, n_tokens)
            for tensor in self.geometry.tensors
            if self.lengths[tensor.layer] > n_tokens
        ]
        for crop in crops:
            crop.result()
        self.lengths = [min(length, n_tokens) for length in self.lengths]
        for slot in self._slots:
            slot.layer = None

    def synchronize(self) -> None:
        """Wait until everything queued has come to its end; raise what went wrong first, once."""
        with self.activity.call():
            with self.activity.waiting_for("write"):
                write_error = finish(self._stores)
                self._stores.clear()
            with self.activity.waiting_for("read"):
                read_errors = [slot.settle() for slot in self._slots]
        if error := next(filter(None, [write_error, *read_errors]), None):
            raise error

    @property
    def pinned(self) -> PinnedState:
        return pinned_state(self._buffers)

    @property
    def _buffers(self) -> list[PinnedBuffer]:
        slots = [buffer for slot in self._slots for buffer in slot.buffers]
        return [*self._threads.buffers, *slots, *([self._ahead.buffer] if self._ahead else [])]

    def placement(self, tensor: TensorId) -> tuple[str, Placement]:
        """The path that a tensor takes, and where on the device it lies."""
        path = self._path(tensor)
        return path.name, path.placement(tensor)

    @property
    def operations(self) -> list[Operation]:
        """Everything done so far, in the order of completion; nothing without `keep_log`."""
        return self._ledger.operations

    def close(self) -> None:
        """End the copy threads and give all space back; safe to call twice.

        Raises:
            StorageError: a device did not take its blocks back.
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
            if error is None:  # else that is what went wrong first
                raise

    def _find(self, layer: int) -> Slot | None:
        """The slot that holds, or will hold, the layer's tokens as they are now."""
        wanted = self.geometry.visible_rows(layer, self.lengths[layer])
        return next((slot for slot in self._slots if slot.layer == layer and slot.rows == wanted), None)

    def _spare(self) -> Slot:
        return next((slot for slot in self._slots if slot is not self._current), self._current)

    def _load(self, layer: int, slot: Slot) -> None:
        slot.empty()
        slot.layer = layer
        slot.rows = self.geometry.visible_rows(layer, self.lengths[layer])
        moment = self.moment if layer >= (self._current.layer or 0) else self.moment.next()
        computed = self.link.compute_so_far()
        transfers = [
            Transfer(
                self._path(tensor),
                tensor,
                slot.rows,
                self._view(slot, tensor, len(slot.rows)),
                moment,
                computed,
                slot.buffers[tensor.kind == "v"] if slot.buffers else None,
            )
            for tensor in (TensorId(layer, "k"), TensorId(layer, "v"))
        ]
        strategy = self.policy.strategy(transfers[0].path.name, moment)
        before = () if strategy == "overlap_full" or slot is self._current else self._current.loads
        slot.loads = self._start(transfers, strategy, before)
        watch(self.policy, transfers, slot.loads, before)

    def _start(
        self, transfers: Sequence[Transfer], strategy: Strategy, before: Sequence[Future[None]]
    ) -> list[Future[None]]:
        """Load K and V of a layer after those `before` it; what cannot be read ahead goes through the copy threads."""
        if self._ahead and strategy == "overlap_full" and isinstance(transfers[0].path, Queueing):
            return [self._ahead.load(transfer, self._threads.last_write(transfer.tensor)) for transfer in transfers]
        return self._threads.load(transfers, before, stagger=strategy == "cross")

    def _view(self, slot: Slot, tensor: TensorId, n_rows: int) -> torch.Tensor:
        start_byte = self._path(tensor).lead_bytes(tensor, slot.rows.start) if slot.buffers else 0
        end_byte = start_byte + n_rows * self.geometry.tensors[tensor].row_bytes
        memory = slot.memory[tensor.kind == "v"][start_byte:end_byte]
        return memory.view(getattr(torch, self.geometry.dtype)).view(n_rows, *self.geometry.tensors[tensor].row_shape)

    def _path(self, tensor: TensorId) -> Path:
        path = self.paths.get(self.plan.layers[tensor.layer]) if self.plan else None
        if path is None:
            raise ConfigurationError("the store is not bound to storage, or closed again; make one and call bind first")
        return path

"""A run's claim to blocks of an NVMe namespace: checked, held exclusively, and cleared after killed runs."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux import nvme_command, ownership
from dualblade.linux.nvme_namespace import Identity, Queue, find
from dualblade.linux.page_residency import resident_bytes
from dualblade.targets import leftovers
from dualblade.targets.base import Deallocation

_MAX_CHECKS = 64  # commands that read deallocated blocks back, evenly spread
# Until Linux 6.5, drivers/nvme/host/ioctl.c polled the request's bio, which another ring's poll may have ended.
_POLLS_SAFELY_SINCE = (6, 5)


def kernel_version(release: str) -> tuple[int, int]:
    """Parse major and minor number of a release such as 6.1.0-57-amd64."""
    major, minor = re.findall(r"\d+", release)[:2]
    return int(major), int(minor)


def check_polling(queue: Queue, device: str, release: str) -> None:
    """Refuse to poll for completions of native commands where that is impossible or unsafe.

    Raises:
        ConfigurationError: the device has no queue for polling, or the kernel is too old.
    """
    if not queue.polls:
        raise ConfigurationError(
            f"storage.iopoll=true polls for completions and {device} has no queue for that; load its driver with "
            "nvme.poll_queues=2 (modprobe.d or the kernel's command line), or leave iopoll false"
        )
    if kernel_version(release) < _POLLS_SAFELY_SINCE:
        raise ConfigurationError(
            f"storage.iopoll=true is not safe on Linux {release}: before 6.5 the kernel may follow a freed request "
            "when two rings poll one queue for native commands; take a newer kernel, or leave iopoll false"
        )


class BlockClaim:
    """The `blocks` of the configured namespace, held exclusively until `close`."""

    def __init__(self, storage: StorageConfig) -> None:
        """Check and take the blocks.

        Raises:
            StorageError, ConfigurationError: the blocks are not clearly ours; nothing was written.
        """
        serial = _require_named(storage)
        self.namespace = find(serial, storage.namespace)
        self._records = Path(storage.records or storage.directory)
        self._exclusive_fd = -1
        self.fd = _open_character_device(self.namespace.character_device)
        try:
            self.identity = Identity.of(self.namespace, self.fd)
            self._check_format(storage)
            self.device, self._owned = self._resolve(storage.partition)
            self.blocks = _granted(storage, self._owned)
            ownership.refuse_outside(self.blocks, self._owned, str(self.device))
            self._take()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.namespace.character_device} (serial {self.identity.controller.serial})"

    def _check_format(self, storage: StorageConfig) -> None:
        block_format, entries = self.identity.format, self.identity.queue.entries
        if storage.lba_bytes != block_format.lba_bytes:
            raise ConfigurationError(
                f"{self} is formatted with blocks of {block_format.lba_bytes} bytes; set "
                f"storage.lba_bytes={block_format.lba_bytes} (it is {storage.lba_bytes})"
            )
        if block_format.metadata_bytes:
            raise StorageError(
                f"{self} is formatted with {block_format.metadata_bytes} bytes of metadata in each block, which KV has "
                "no use for; choose a namespace without"
            )
        if storage.queue_depth > entries:
            raise ConfigurationError(
                f"storage.queue_depth={storage.queue_depth} is more than the {entries} commands that a queue of {self} "
                f"holds; use at most {entries}"
            )

        if storage.iopoll:
            check_polling(self.identity.queue, str(self), platform.release())

    def _resolve(self, number: int | None) -> tuple[Path, range]:
        """Return the block device of the namespace or of a partition, and its blocks of the namespace."""
        if number is None:
            return self.namespace.block_device, range(self.identity.format.n_blocks)
        partitions = self.namespace.partitions(self.identity.format.lba_bytes)
        for partition in partitions:
            if partition.number == number:
                return partition.device, partition.blocks
        numbers = ", ".join(str(partition.number) for partition in partitions) or "none"
        raise StorageError(f"{self} has no partition {number}; it has {numbers}: check storage.partition")

    def _take(self) -> None:
        """Refuse blocks in use, then lock them, and only then search them for data."""
        partitions = self.namespace.partitions(self.identity.format.lba_bytes)
        parts = [partition.device for partition in partitions] if self._whole else []
        ownership.refuse_users(self.device, parts)
        ownership.lock_blocks(self.fd, str(self), self.blocks)
        if self._whole:
            ownership.refuse_partition_table(self.device, parts)
        self._exclusive_fd = ownership.open_exclusive(self.device)
        ownership.refuse_signature(self.device)
        os.posix_fadvise(self._exclusive_fd, 0, 0, os.POSIX_FADV_DONTNEED)  # pages of the signature search

    @property
    def _whole(self) -> bool:
        return self.device == self.namespace.block_device

    def first_blocks(self, size_bytes: int) -> range:
        """Return the first claimed blocks that hold `size_bytes`.

        Raises:
            StorageError: the claim has fewer blocks.
        """
        lba_bytes = self.identity.format.lba_bytes
        n_blocks = -(-size_bytes // lba_bytes)
        if n_blocks > len(self.blocks):
            raise StorageError(
                f"storage grants {len(self.blocks) * lba_bytes:,} bytes of {self} and this run needs {size_bytes:,}; "
                "raise storage.last_lba, name a larger partition, or use a larger scale"
            )
        return self.blocks[:n_blocks]

    def left_behind(self) -> Iterator[tuple[leftovers.LeftoverRecord, range]]:
        """Return the records of killed runs on this namespace, with the blocks that lie in the claim."""
        for record in leftovers.records(self._records, self.identity.wwid):
            if blocks := record.leftover.within(self.blocks):
                yield record, blocks

    def reclaim(self) -> list[Deallocation]:
        """Deallocate blocks that killed runs left in the claim; remove a record when all of its blocks were in it."""
        done = []
        leftovers.remove_partial_records(self._records)
        for record, blocks in self.left_behind():
            done.append(self.deallocate(blocks))
            if blocks == record.leftover.blocks:
                record.remove()
        return done

    def remember(self, blocks: range) -> leftovers.LeftoverRecord:
        """Write a record that `blocks` are about to be written."""
        return leftovers.LeftoverRecord.write(
            self._records, leftovers.Leftover(self.identity.wwid, blocks.start, blocks.stop)
        )

    def deallocate(self, blocks: range) -> Deallocation:
        """Deallocate blocks of the claim, and read back whether they are empty.

        Raises:
            StorageError: the device refused.
        """
        assert self.blocks.start <= blocks.start and blocks.stop <= self.blocks.stop
        block_format = self.identity.format
        if not self.identity.controller.has_deallocate or not blocks:
            return Deallocation(0, 0, 0, block_format.reads_zeroes)
        for start in range(blocks.start, blocks.stop, nvme_command.MAX_BLOCKS_PER_RANGE):
            part = range(start, min(start + nvme_command.MAX_BLOCKS_PER_RANGE, blocks.stop))
            nvme_command.deallocate(self.fd, self.identity.nsid, [part])
        checked = zero = 0
        for sample in self._samples(blocks):
            with contextlib.suppress(StorageError):  # a block that cannot be read proves nothing
                data = nvme_command.read(self.fd, self.identity.nsid, sample.start, len(sample), block_format.lba_bytes)
                checked += len(data)
                zero += data.count(0)
        return Deallocation(len(blocks) * block_format.lba_bytes, checked, zero, block_format.reads_zeroes)

    def _samples(self, blocks: range) -> Iterator[range]:
        """Choose at most `_MAX_CHECKS` parts of one command's size, with the first and the last."""
        max_blocks = self.identity.most_chunk_bytes // self.identity.format.lba_bytes
        starts = range(blocks.start, blocks.stop, max_blocks)
        step = max(1, len(starts) / _MAX_CHECKS)
        for index in range(min(len(starts), _MAX_CHECKS)):
            start = starts[int(index * step)] if index < _MAX_CHECKS - 1 else starts[-1]
            yield range(start, min(start + max_blocks, blocks.stop))

    def resident_bytes(self, blocks: range) -> int:
        """Bytes of the blocks in the block device's page cache."""
        lba_bytes = self.identity.format.lba_bytes
        first_byte = (blocks.start - self._owned.start) * lba_bytes
        return resident_bytes(self._exclusive_fd, len(blocks) * lba_bytes, first_byte)

    def device_facts(self) -> dict[str, object]:
        """Return what the device and the kernel report about the device, for result.json."""
        identity = self.identity
        return {
            "device": str(self.device),
            "character_device": str(self.namespace.character_device),
            "namespace_id": identity.nsid,
            "wwid": identity.wwid,
            **asdict(identity.controller),
            **asdict(identity.format),
            "queue": asdict(identity.queue),
            "most_chunk_bytes": identity.most_chunk_bytes,
        }

    def close(self) -> None:
        """Close the device; safe to call twice."""
        for fd in (self.fd, self._exclusive_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self._exclusive_fd = -1


def reclaim(storage: StorageConfig) -> None:
    """Deallocate blocks that killed runs left where `storage` may write, if that is possible now.

    If not (the device is gone, or still busy with a killed run's commands), the record stays for the next run.
    """
    records = Path(storage.records or storage.directory)
    leftovers.remove_partial_records(records)
    with contextlib.suppress(StorageError, ConfigurationError):
        if leftovers.exist(records):
            claim = BlockClaim(storage)
            try:
                claim.reclaim()
            finally:
                claim.close()


def _require_named(storage: StorageConfig) -> str:
    if storage.serial is None or (storage.partition is None and storage.last_lba is None):
        raise ConfigurationError(
            "storage.backend=nvme writes to raw blocks, so storage.serial must name the device, and either "
            "storage.partition or storage.last_lba (with first_lba) the blocks that may be overwritten; "
            "`nvme list` or `lsblk -o NAME,SERIAL,SIZE` shows the devices"
        )
    return storage.serial


def _granted(storage: StorageConfig, owned: range) -> range:
    """Return the blocks that the configuration grants, counted from the start of the namespace."""
    stop = owned.stop if storage.last_lba is None else owned.start + storage.last_lba + 1
    return range(min(owned.start + storage.first_lba, stop), stop)


def _open_character_device(node: Path) -> int:
    try:
        return os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        cure = {
            errno.EACCES: "run as root, or give your user access to it",
            errno.ENOENT: "Linux 5.13 or newer makes it; is devtmpfs mounted?",
        }.get(error.errno or 0, "see the kernel log")
        raise StorageError(f"cannot open {node} for native NVMe commands: {error.strerror}; {cure}") from None

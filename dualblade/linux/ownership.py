"""Safety of raw writes: which blocks a run may write, and who else uses them.

Nothing here writes. A device is refused while anything is mounted from it, swapped to it, stacked on it or stored on
it, and is then held exclusively, so that nobody can begin to use it before the run ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux.block_device import device_number
from dualblade.linux.mounts import read_mounts

_TOOL_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # a user's PATH often lacks the administrator's folders

# A killed run's commands may still be in the device; the kernel releases the lock when the last of them is done.
_LOCK_PATIENCE_S = 5.0
_LOCK_FORMAT = "hhqqi"  # struct flock of fcntl(2): type, whence, start, length, pid


def refuse_users(whole: Path, parts: Iterable[Path] = ()) -> None:
    """Refuse a device from which, or from a part of which, something is mounted, swapped to or built.

    Raises:
        StorageError: with the user that was found.
    """
    for device in (whole, *parts):
        _refuse_mounted(device)
        _refuse_swap(device)
        _refuse_holders(device)


def _refuse_mounted(device: Path) -> None:
    number = device_number(device)
    for mount in read_mounts():
        if mount.device == number or (mount.source.startswith("/") and os.path.realpath(mount.source) == str(device)):
            raise StorageError(
                f"{device} is mounted on {mount.point}, so nothing may be written to it raw; unmount it if its content "
                "may be lost, or name another device"
            )


def _refuse_swap(device: Path) -> None:
    lines = Path("/proc/swaps").read_text().splitlines()[1:]
    if str(device) in (os.path.realpath(line.split()[0]) for line in lines):
        raise StorageError(f"{device} is in use as swap; run swapoff {device} first, or name another device")


def _refuse_holders(device: Path) -> None:
    folder = Path(f"/sys/dev/block/{device_number(device)}/holders")
    holders = sorted(path.name for path in folder.glob("*"))
    if holders:
        raise StorageError(
            f"{device} is part of {', '.join(map(_holder, holders))}; take it out of there, or name another device"
        )


def _holder(name: str) -> str:
    """A holder as its users know it: device-mapper tells whether it is LVM or an encrypted volume (dm/uuid)."""
    for attribute in ("dm/name", "md/metadata_version"):
        path = Path(f"/sys/block/{name}/{attribute}")
        if path.exists():
            kind = "RAID" if attribute.startswith("md") else _dm_kind(name)
            return f"{kind} {name} ({path.read_text().strip()})"
    return name


def _dm_kind(name: str) -> str:
    prefix = Path(f"/sys/block/{name}/dm/uuid").read_text().partition("-")[0]
    return {"LVM": "LVM volume", "CRYPT": "encrypted volume"}.get(prefix, "device-mapper volume")


def refuse_partition_table(device: Path, parts: Iterable[Path]) -> None:
    """Refuse a whole device that is divided into partitions.

    Raises:
        StorageError: a table is on it, whether or not the kernel has read it.
    """
    names = [part.name for part in parts]
    table = _probe(device).get("PTTYPE")
    if names or table:
        raise StorageError(
            f"{device} has a partition table ({', '.join([*([table] if table else []), *names])}), so it is not ours "
            "as a whole; name an empty partition by storage.partition, or wipe the table yourself (wipefs -a)"
        )


def refuse_signature(device: Path) -> None:
    """Refuse a device with anything on it that blkid knows: file system, RAID, LVM, LUKS, swap, partition table.

    Raises:
        StorageError: with what was found.
    """
    found = _probe(device)
    if found:
        what = ", ".join(f"{key}={value}" for key, value in found.items())
        raise StorageError(
            f"{device} is not empty (blkid finds {what}); wipe it yourself (wipefs -a) if its content may be lost"
        )


def _probe(device: Path) -> dict[str, str]:
    """Return what `blkid -p` finds on the device itself; the entry in a partition table does not count."""
    blkid = shutil.which("blkid", path=_TOOL_PATH)
    if blkid is None:
        raise StorageError("blkid is not installed, so nobody can tell whether the device is empty; install util-linux")
    command = [blkid, "--probe", "--output", "export", str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):  # 2: nothing was found; 8: signatures that contradict each other
        raise StorageError(
            f"{device} cannot be shown to be empty (blkid: {done.stderr.strip() or f'code {done.returncode}'}); "
            "wipe it yourself (wipefs -a) if its content may be lost"
        )
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {key: value for key, value in pairs if key != "DEVNAME" and not key.startswith("PART_ENTRY_")}


def open_exclusive(device: Path) -> int:
    """Open a device exclusively: while the descriptor is open, nobody else can mount it or build on it.

    Raises:
        StorageError: somebody was first, or the device cannot be opened.
    """
    try:
        return os.open(device, os.O_RDWR | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        cure = {
            errno.EBUSY: "it is mounted, swapped to, or held by another device or another run; free it or name another",
            errno.EACCES: "run as root, or give your user access to the device",
            errno.ENOENT: "check the device that storage names",
        }.get(error.errno or 0, "check the device that storage names")
        raise StorageError(f"cannot open {device} for raw writes: {error.strerror}; {cure}") from None


def lock_blocks(fd: int, name: str, blocks: range) -> None:
    """Claim blocks of a namespace among the processes of this program, for as long as `fd` is open.

    The lock lies on the device node itself (an open-file-description lock, fcntl(2)), so it needs no file, cannot be
    left behind, and outlives a killed process until its last command is done.

    Raises:
        StorageError: another process holds some of them.
    """
    wanted = struct.pack(_LOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, blocks.start, len(blocks), 0)
    give_up_at = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() > give_up_at:
                raise _locked(fd, name, wanted) from None
            time.sleep(0.05)


def _locked(fd: int, name: str, wanted: bytes) -> StorageError:
    _, _, start, length, _ = struct.unpack(_LOCK_FORMAT, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted))
    return StorageError(
        f"another run of this program uses LBAs {start:,} to {start + length - 1:,} of {name}, which overlap those of "
        "storage; wait for its end, or give this one a range or partition of its own"
    )


def refuse_outside(asked: range, owned: range, owner: str) -> None:
    """Refuse blocks that are not all within `owned`.

    Raises:
        ConfigurationError: with what there is.
    """
    if not (owned.start <= asked.start <= asked.stop <= owned.stop):
        raise ConfigurationError(
            f"storage.first_lba and last_lba ask for blocks up to {asked.stop - 1 - owned.start:,} of {owner}, which "
            f"has blocks 0 to {len(owned) - 1:,}; nothing was written; choose a range within"
        )

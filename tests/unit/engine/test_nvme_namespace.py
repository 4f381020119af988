"""What a namespace says about itself, from bytes laid out as the specification has them and from a sysfs of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.errors import ConfigurationError, StorageError
from dualblade.linux.nvme_namespace import Controller, Format, Queue, find, most_chunk_bytes, namespaces
from dualblade.targets.claim import check_polling, kernel_version

KIB = 1024


def put(size: int, *fields: tuple[int, bytes]) -> bytes:
    data = bytearray(size)
    for offset, content in fields:
        data[offset : offset + len(content)] = content
    return bytes(data)


def test_identify_controller() -> None:
    data = put(
        4096,
        (4, b"S6B0NX0W".ljust(20)),
        (24, b"A model of SSD".ljust(40)),
        (64, b"1B2QJXD7"),
        (77, b"\x09"),
        (520, (0x4 | 0x58).to_bytes(2, "little")),
    )
    assert Controller.parse(data) == Controller("S6B0NX0W", "A model of SSD", "1B2QJXD7", 2048 * KIB, True)


def test_a_controller_without_limit_or_deallocate() -> None:
    controller = Controller.parse(bytes(4096))
    assert controller.mdts_bytes is None
    assert not controller.has_deallocate


@pytest.mark.parametrize(
    ("n_formats", "flbas", "index"),
    [(1, 0x00, 0), (1, 0x10, 0), (15, 0x02, 2), (16, 0x22, 2), (32, 0x22, 18), (63, 0x6F, 63)],
)
def test_the_block_format_in_use(n_formats: int, flbas: int, index: int) -> None:
    """FLBAS bits 3:0, and, with more than 16 formats only, bits 6:5 above them; LBADS is a power of two."""
    data = put(
        4096,
        (0, (1000).to_bytes(8, "little")),
        (25, bytes([n_formats, flbas])),
        (33, b"\x09"),
        (120, bytes.fromhex("0025385b71b00c31")),
        (128, bytes([0, 0, 9, 0]) * 64),
        (128 + 4 * index, bytes([8, 0, 12, 0])),
    )
    assert Format.parse(data) == Format(1000, 4096, 8, "0025385b71b00c31", None, True)


def test_zeroes_are_promised_only_where_the_device_says_so() -> None:
    for dlfeat, promised in ((0x00, False), (0x01, True), (0x02, False), (0x09, True)):
        assert Format.parse(put(4096, (33, bytes([dlfeat])))).reads_zeroes is promised


@given(
    st.sampled_from([512, 4096]),
    st.one_of(st.none(), st.integers(0, 10).map(lambda n: 4 * KIB << n)),
    st.integers(4, 4096),
    st.integers(1, 512),
)
def test_a_command_is_within_every_limit_and_no_smaller_than_it_need_be(
    lba_bytes: int, mdts_bytes: int | None, most_kib: int, most_segments: int
) -> None:
    chunk_bytes = most_chunk_bytes(lba_bytes, mdts_bytes, Queue(most_kib * KIB, most_segments, 64), 4096)
    limits = [most_kib * KIB, most_segments * 4096, mdts_bytes or 1 << 40]
    assert chunk_bytes % lba_bytes == 0 and chunk_bytes > 0
    assert all(chunk_bytes <= limit for limit in limits)
    assert any(chunk_bytes + lba_bytes > limit for limit in limits)


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Two devices, one with two namespaces; a third is no NVMe, and one name is a hidden path of a multipath device."""
    present = {"nvme0n1": ("SSDA", 1), "nvme1n1": ("SSDB", 1), "nvme1n2": ("SSDB", 2)}
    for name, (serial, nsid) in present.items():
        folder = tmp_path / "block" / name
        (folder / "device").mkdir(parents=True)
        (folder / "device/serial").write_text(f"{serial:<20}\n")
        (folder / "nsid").write_text(f"{nsid}\n")
    (tmp_path / "block/nvme2c0n1").mkdir()
    (tmp_path / "block/sda").mkdir()
    return tmp_path


def test_namespaces_are_found_by_serial(sys_root: Path) -> None:
    assert [namespace.name for namespace in namespaces(sys_root)] == ["nvme0n1", "nvme1n1", "nvme1n2"]
    assert find("SSDA", None, sys_root).character_device == Path("/dev/ng0n1")
    assert find("SSDB", 2, sys_root).block_device == Path("/dev/nvme1n2")


@pytest.mark.parametrize(
    ("serial", "nsid", "words"),
    [
        ("SSDC", None, "no NVMe device has serial 'SSDC'; present: SSDA, SSDB"),
        ("SSDA", 3, "no namespace 3; set storage.namespace to one of 1"),
        ("SSDB", None, "namespaces 1, 2; say which"),
    ],
)
def test_what_is_not_clearly_meant_is_refused(sys_root: Path, serial: str, nsid: int | None, words: str) -> None:
    with pytest.raises((StorageError, ConfigurationError), match=words):
        find(serial, nsid, sys_root)


def test_a_partition_in_blocks_of_the_namespace(sys_root: Path) -> None:
    """sysfs counts in 512-byte sectors whatever the block size (Documentation/ABI: stable/sysfs-block)."""
    for number, (start, size) in {2: (1_050_624, 8), 1: (2048, 1_048_576)}.items():
        folder = sys_root / f"block/nvme0n1/nvme0n1p{number}"
        folder.mkdir()
        for name, value in {"partition": number, "start": start, "size": size}.items():
            (folder / name).write_text(f"{value}\n")
    first, second = find("SSDA", None, sys_root).partitions(4096)
    assert (first.number, first.device, first.blocks) == (1, Path("/dev/nvme0n1p1"), range(256, 131_328))
    assert second.blocks == range(131_328, 131_329)


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-57-amd64", (6, 1)), ("6.18.44-fc-v669", (6, 18)), ("7.0-rc1", (7, 0)), ("6.5.0", (6, 5))],
)
def test_a_kernels_release_is_read_as_numbers(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


def test_polling_takes_a_queue_for_it_and_a_kernel_that_survives_it() -> None:
    plain, polled = Queue(131_072, 32, 1024), Queue(131_072, 32, 1024, polls=True)
    check_polling(polled, "/dev/ng0n1", "6.5.0-9-generic")
    with pytest.raises(ConfigurationError, match=r"/dev/ng0n1 has no queue for that; .*nvme\.poll_queues=2"):
        check_polling(plain, "/dev/ng0n1", "6.12.1")
    with pytest.raises(ConfigurationError, match=r"not safe on Linux 6\.1\.0-57-amd64: before 6\.5 .* newer kernel"):
        check_polling(polled, "/dev/ng0n1", "6.1.0-57-amd64")

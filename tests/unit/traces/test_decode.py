"""Raw traces become the commands that they show, whatever happened to their text; nothing is dropped silently."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.trace_text import Request, trailer, write_requests, write_trace
from traces import text
from traces.decode import decode, main
from traces.errors import TraceError
from traces.schema import TraceInfo, read


def decoded(raw: Path, **options: Any) -> tuple[list[dict[str, Any]], TraceInfo]:
    out = raw.with_suffix(".parquet")
    info = decode(raw, out, **options)
    table, stored = read(out)
    assert stored == info
    return table.to_pylist(), info


def workload(n: int, seed: int = 1) -> list[Request]:
    """Requests that overlap, some in the same sector one after the other."""
    moments = random.Random(seed)
    issued = [1_000 + 10_000 * i + moments.randrange(5_000) for i in range(n)]
    return [Request(at, at + moments.randrange(1, 200_000), 8 * (i // 3), cpu=i % 2) for i, at in enumerate(issued)]


def depth(requests: list[Request], request: Request) -> int:
    """By the definition, one request at a time."""
    return sum(other.issue_ns <= request.issue_ns < other.complete_ns for other in requests)


def test_a_request_has_its_place_times_queue_and_status(tmp_path: Path) -> None:
    raw = write_requests(tmp_path / "t.txt", [Request(100, 350, 80, 8192, "WFS", cpu=1, error=-5)])
    (row,), info = decoded(raw)
    assert (row["device"], row["queue"], row["cid"], row["op"]) == ("vda", 1, -1, "write")
    assert (row["offset_bytes"], row["bytes"], row["status"]) == (80 * 512, 8192, 5)
    assert (row["issue_ns"], row["complete_ns"], row["depth_at_issue"]) == (100, 350, 1)
    assert info.valid and info.printed_events == info.counted_events == 1
    assert (row["layer"], row["kind"], row["phase"], row["iteration"]) == (-1, "", "", -1)


@pytest.mark.parametrize(
    ("rwbs", "op"),
    [("RA", "read"), ("WS", "write"), ("FWFS", "write"), ("FF", "flush"), ("F", "flush"), ("DS", "deallocate")],
)
def test_letters_of_the_block_layer_are_operations(tmp_path: Path, rwbs: str, op: str) -> None:
    (row,), _ = decoded(write_requests(tmp_path / "t.txt", [Request(1, 2, 8, rwbs=rwbs)]))
    assert row["op"] == op


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(0, 9)), min_size=1, max_size=60))
def test_depth_is_what_is_in_flight(tmp_path: Path, drawn: list[tuple[int, int, int]]) -> None:
    # Distinct moments: at a tie the order of the two events is not defined.
    requests = [Request(1 + 4 * at + 10**7 * n % 3, 0, sector) for n, (at, _, sector) in enumerate(drawn)]
    unique = {request.issue_ns: request for request in requests}
    requests = [
        r._replace(complete_ns=r.issue_ns + 4 * drawn[n % len(drawn)][1] + 2) for n, r in enumerate(unique.values())
    ]
    rows, info = decoded(write_requests(tmp_path / "t.txt", requests))
    assert info.valid
    assert [row["depth_at_issue"] for row in rows] == [
        depth(requests, request) for request in sorted(requests, key=lambda r: r.issue_ns)
    ]


def test_blocks_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_requests(tmp_path / "t.txt", workload(1_000))
    whole, info = decoded(raw)
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(text.blocks, "__defaults__", (1 << 12,))
    assert decoded(raw) == (whole, info)


def test_lines_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    requests = workload(500)
    expected, _ = decoded(write_requests(tmp_path / "a.txt", requests))
    lines = [request.line for request in requests]
    random.Random(7).shuffle(lines)
    rows, info = decoded(write_trace(tmp_path / "b.txt", [*lines, *trailer(500)]))
    assert info.valid
    assert sorted(rows, key=lambda r: (r["issue_ns"], r["cid"])) == expected


def test_a_lost_event_makes_the_trace_invalid_with_both_numbers(tmp_path: Path) -> None:
    lines = [request.line for request in workload(10)]
    rows, info = decoded(write_trace(tmp_path / "t.txt", [*lines[1:], *trailer(10)]))
    assert len(rows) == 9
    assert not info.valid
    assert "the kernel counted 10 events and 9 were printed" in str(info.reason)


def test_a_trace_without_its_end_is_invalid(tmp_path: Path) -> None:
    _, info = decoded(write_trace(tmp_path / "t.txt", [request.line for request in workload(5)]))
    assert not info.valid
    assert "without the kernel's count" in str(info.reason)


def test_commands_that_only_the_disk_counted_make_the_trace_invalid(tmp_path: Path) -> None:
    lines = [request.line for request in workload(100)]
    _, few = decoded(write_trace(tmp_path / "a.txt", [*lines, *trailer(100, completed=101)]))
    _, many = decoded(write_trace(tmp_path / "b.txt", [*lines, *trailer(100, completed=150)]))
    assert few.valid and few.missed_commands == 1
    assert not many.valid
    assert "count 50 commands more than the 100" in str(many.reason)


def test_probes_that_the_kernel_skipped_make_the_trace_invalid(tmp_path: Path) -> None:
    """Passthrough commands are in no statistics of a disk before Linux 6.13: this alone tells that some lack."""
    lines = [request.line for request in workload(100)]
    _, few = decoded(write_trace(tmp_path / "a.txt", [*lines, *trailer(100, completed=0, skipped=2)]))
    _, many = decoded(write_trace(tmp_path / "b.txt", [*lines, *trailer(100, completed=0, skipped=3)]))
    assert few.valid and few.skipped_probes == 2
    assert not many.valid
    assert "skipped a probe 3 times and 100 events were printed" in str(many.reason)


def test_a_command_in_flight_at_the_end_is_counted(tmp_path: Path) -> None:
    lines = [request.line for request in workload(3)]
    left = ["@issued[266338304, 88, 0]: (1000, 1)", "@issued[18446628573690245376]: 1000"]
    _, info = decoded(write_trace(tmp_path / "t.txt", [*lines, *trailer(3), *left]))
    assert (info.valid, info.unmatched_issues, info.broken_lines) == (True, 2, 0)


def test_broken_lines_are_counted_and_cost_no_other(tmp_path: Path) -> None:
    requests = workload(50)
    good = [request.line for request in requests]
    bad = ["1,2,3", good[0].replace(",R", ",R,9"), "x" + good[1], "\x00\xff", good[2][:20] + good[3], "1,2,3,4,5,6,7,"]
    lines = good[:25] + bad + good[25:]
    rows, info = decoded(write_trace(tmp_path / "t.txt", [*lines, *trailer(50)]))
    assert len(rows) == 50
    assert info.broken_lines == len(bad)
    assert info.valid


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_never_raises_and_never_passes_unseen(tmp_path: Path, data: st.DataObject) -> None:
    """Cut, overwritten, spliced: what is left is decoded, and unless the text says the same the trace is invalid."""
    raw = write_requests(tmp_path / "t.txt", workload(30))
    whole = raw.read_bytes()
    body = whole.index(b"READY")
    at = data.draw(st.integers(body, len(whole)))
    damage = data.draw(st.sampled_from(["cut", "garbage", "splice"]))
    middle = {"cut": b"", "garbage": data.draw(st.binary(min_size=1, max_size=200)), "splice": whole[body : at - 9]}
    skipped = data.draw(st.integers(0, 60)) if damage == "garbage" else 0
    tail = b"" if damage == "cut" else whole[at + skipped :]
    raw.write_bytes(whole[:at] + middle[damage] + tail)
    rows, info = decoded(raw)
    assert len(rows) <= info.printed_events
    if info.valid:
        assert info.printed_events == info.counted_events


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "does not begin with the header of a trace"),
        (b"hello\nworld\n", "give --format, one of block_requests"),
        (b'#{"version": 7, "source": "block_requests", "devices": {}}\n', "has version 7 and this program reads 1"),
        (b'#{"version": 1, "source": "elsewhere", "devices": {}}\n', "elsewhere is no known format of a trace"),
    ],
)
def test_text_that_is_no_trace_is_refused_by_a_sentence(
    tmp_path: Path, content: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "t.txt"
    raw.write_bytes(content)
    with pytest.raises(TraceError, match=sentence):
        decode(raw, tmp_path / "t.parquet")
    assert main([str(raw), str(tmp_path / "t.parquet")]) == 1
    assert sentence in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


def test_nvme_commands_are_by_controller_queue_and_lba(tmp_path: Path) -> None:
    raw = write_trace(
        tmp_path / "t.txt",
        [
            "500,900,0,2,4097,2,16,7,0,nvme0n1",
            "600,700,0,2,4098,1,32,0,16384,nvme0n1",
            "650,800,0,1,7,9,0,0,0,nvme0n1",
            *trailer(3),
        ],
        source="nvme_commands",
    )
    rows, info = decoded(raw)
    assert info.valid
    assert [(r["op"], r["queue"], r["cid"], r["offset_bytes"], r["bytes"], r["status"]) for r in rows] == [
        ("read", 2, 4097, 16 * 512, 8 * 512, 0),
        ("write", 2, 4098, 32 * 512, 512, 16384),
        ("deallocate", 1, 7, -1, 0, 0),
    ]
    assert [row["depth_at_issue"] for row in rows] == [1, 2, 3]


def test_requests_issued_before_the_trace_are_only_counted(tmp_path: Path) -> None:
    lines = [Request(0, 50, 8).line, Request(60, 70, 8).line, *trailer(2), "@issued[266338304, 48, 1]: (65, 0, 4096)"]
    rows, info = decoded(write_trace(tmp_path / "t.txt", lines))
    assert [row["issue_ns"] for row in rows] == [60]
    assert (info.valid, info.unmatched_completions, info.unmatched_issues) == (True, 1, 1)

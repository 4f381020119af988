"""Turns raw trace text into device_io.parquet: `python -m traces.decode RAW OUT [--format NAME]`.

A trace of ours says itself what it is. With OUT in the folder of its run, commands are attributed to the run's tensors
and operations, as the harness does. Formats of others: blkparse, biosnoop, cheops25. Memory stays bounded whatever
the length: text is read in blocks, and between two of them only what is in flight is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.linux.files import replacing
from traces.attribution import FILES, RunAttribution
from traces.devices import Devices
from traces.errors import TraceError
from traces.events import Events
from traces.formats import biosnoop, blkparse, block_requests, cheops25, io_layers, nvme_commands
from traces.pairing import Commands, Pairing, unpaired
from traces.reorder import Reorder
from traces.schema import METADATA_KEY, OPERATIONS, SCHEMA, TraceInfo
from traces.text import Account, blocks
from traces.text_columns import names

HEADER_VERSION = 1

# Share of commands that a trace may lack: the kernel skips a probe when the interrupt that completes a command finds
# another probe running on its CPU.
MAX_MISSED = 0.02
MONOTONIC = "CLOCK_MONOTONIC"
SINCE_START = "since the tracer started"


class Parser(Protocol):
    """Makes events of a block of text; lines that are none go to the account."""

    def __call__(self, block: bytes, devices: Devices, account: Account) -> Events: ...


@dataclass(frozen=True)
class Source:
    """A format of text. `counted`: the kernel's own count comes with it; `issues_only`: it has no completions."""

    parse: Parser
    clock: str
    counted: bool = False
    issues_only: bool = False


SOURCES: Mapping[str, Source] = {
    "block_requests": Source(block_requests.parse, MONOTONIC, counted=True),
    "io_layers": Source(io_layers.parse, MONOTONIC, counted=True),
    "io_layers_nvme": Source(io_layers.parse_nvme, MONOTONIC, counted=True),
    "nvme_commands": Source(nvme_commands.parse, MONOTONIC, counted=True),
    "blkparse": Source(blkparse.parse, SINCE_START),
    "biosnoop": Source(biosnoop.parse, SINCE_START),
    "cheops25": Source(cheops25.parse, MONOTONIC, issues_only=True),
}


class Attribution(Protocol):
    """Says which tensor's bytes a command moves, and for which operation."""

    def columns(self, commands: Commands, device_names: list[str]) -> dict[str, pa.Array]:
        """The schema's columns from `layer` on."""
        ...


class Nothing:
    """Attribution of a trace of which nothing but its commands is known."""

    def columns(self, commands: Commands, device_names: list[str]) -> dict[str, pa.Array]:
        """-1 and "" everywhere."""
        n = len(commands)
        number, text = np.full(n, -1), np.zeros(n, np.int32)
        values: dict[str, pa.Array] = dict.fromkeys(("kind", "path", "phase"), names(text, [""]))
        return values | {name: pa.array(number) for name in ("layer", "tensor_offset_bytes", "iteration")}


def header(source: str, devices: Mapping[str, Any]) -> bytes:
    """The first line of a raw trace: what the lines after it are."""
    content = {"version": HEADER_VERSION, "source": source, "devices": devices}
    return b"#" + json.dumps(content).encode() + b"\n"


def decode(raw: Path, out: Path, source: str | None = None, attribution: Attribution | None = None) -> TraceInfo:
    """Write OUT, complete or not at all; returns what is known about the trace.

    Raises:
        TraceError: the text cannot be read, or is of no known format.
    """
    name, described = (source, {}) if source else read_header(raw)
    if name not in SOURCES:
        raise TraceError(f"{name} is no known format of a trace; use one of {', '.join(SOURCES)}")
    devices, account, pairing = Devices(described), Account(), Pairing()
    attribute = attribution or Nothing()
    with (
        replacing(out) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", compression_level=1) as writer,
    ):
        for commands in _commands(raw, SOURCES[name], devices, account, pairing):
            writer.write_table(_table(commands, devices.names, attribute))
        info = judge(name, account, pairing, {device: described.get(device, {}) for device in devices.names})
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(info.as_dict()).encode()})
    return info


def judge(name: str, account: Account, pairing: Pairing, devices: dict[str, Any]) -> TraceInfo:
    """Whether a trace is whole: a source that counts must have printed exactly what the kernel counted."""
    info = TraceInfo(
        source=name,
        clock=SOURCES[name].clock,
        valid=True,
        printed_events=account.printed_events,
        counted_events=account.counted_events,
        broken_lines=account.broken_lines,
        missed_commands=_missed(account),
        skipped_probes=account.skipped_probes,
        requeues=account.requeues + pairing.requeues,
        unmatched_issues=account.unmatched_issues + pairing.unmatched_issues,
        unmatched_completions=account.unmatched_completions + pairing.unmatched_completions,
        devices=devices,
    )
    reason = _fault(account, counted=SOURCES[name].counted)
    return dataclasses.replace(info, valid=reason is None, reason=reason)


def _fault(account: Account, *, counted: bool) -> str | None:
    """What makes a trace unusable, in a sentence; None if nothing does."""
    broken = f", and {account.broken_lines:,} lines could not be read" if account.broken_lines else ""
    if not counted:
        if account.broken_lines <= MAX_MISSED * (account.printed_events + account.broken_lines):
            return None
        return f"{account.broken_lines:,} lines could not be read, the first is {account.examples[0]!r}"
    if account.counted_events is None:
        return f"the trace ends without the kernel's count of its events{broken}; was the tracer killed?"
    if account.counted_events != account.printed_events:
        return (
            f"the kernel counted {account.counted_events:,} events and {account.printed_events:,} were printed"
            f"{broken}; raise trace.buffer_pages"
        )
    missed = _missed(account) or 0
    if missed > MAX_MISSED * account.printed_events:
        return (
            f"the disks' own statistics count {missed:,} commands more than the {account.printed_events:,} that were "
            "traced; run the point again"
        )
    if (account.skipped_probes or 0) > MAX_MISSED * account.printed_events:
        return (
            f"the kernel skipped a probe {account.skipped_probes:,} times and {account.printed_events:,} events were "
            "printed; run the point again"
        )
    return None


def _missed(account: Account) -> int | None:
    """Commands that the kernel skipped the probe for, by the disks' own count; flushes are in the trace alone."""
    return None if account.completed is None else max(0, account.completed - account.printed_events)


def read_header(raw: Path) -> tuple[str, dict[str, Any]]:
    """The script that printed a raw trace, and the devices there were.

    Raises:
        TraceError: it does not begin with a header of ours.
    """
    first = next(blocks(raw, block_bytes=1 << 20), b"").partition(b"\n")[0]
    try:
        content = json.loads(first.removeprefix(b"#"))
        version, source, devices = content["version"], str(content["source"]), dict(content["devices"])
    except (ValueError, KeyError, TypeError):
        raise TraceError(
            f"{raw} does not begin with the header of a trace of this project; if another program wrote it, give "
            f"--format, one of {', '.join(SOURCES)}"
        ) from None
    if version != HEADER_VERSION:
        raise TraceError(f"{raw} has version {version} and this program reads {HEADER_VERSION}; trace the run again")
    return source, devices


def _commands(raw: Path, source: Source, devices: Devices, account: Account, pairing: Pairing) -> Iterator[Commands]:
    reorder = Reorder()
    for block in blocks(raw):
        events = source.parse(block, devices, account)
        yield unpaired(events) if source.issues_only else pairing.feed(reorder.feed(events))
    yield pairing.feed(reorder.rest())
    yield pairing.rest()


def _table(commands: Commands, device_names: list[str], attribution: Attribution) -> pa.Table:
    issues = commands.issues
    columns = {
        "device": names(issues.device, device_names),
        "queue": issues.queue,
        "cid": issues.cid,
        "op": names(issues.op, list(OPERATIONS)),
        "offset_bytes": issues.offset_bytes,
        "bytes": issues.bytes,
        "issue_ns": issues.ns,
        "complete_ns": commands.complete_ns,
        "status": commands.status,
        "depth_at_issue": issues.depth,
        **attribution.columns(commands, device_names),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def main(arguments: list[str] | None = None) -> int:
    """0 and a line about the trace; 1 and a sentence if it cannot be decoded, 2 if it is decoded but not whole."""
    parser = argparse.ArgumentParser(prog="python -m traces.decode", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("raw", type=Path, help="text of the trace")
    parser.add_argument("out", type=Path, help="Parquet file to write")
    parser.add_argument("--format", choices=list(SOURCES), help="of a trace that another program wrote")
    options = parser.parse_args(arguments)
    try:
        run = None if options.format else _run_beside(options.out)
        info = decode(options.raw, options.out, options.format, run)
    except (TraceError, OSError) as error:
        print(f"traces.decode: {error}", file=sys.stderr)
        return 1
    whose = f"attributed to the run in {options.out.parent}" if run else _why_nobodys(options.format)
    print(f"{info.printed_events:,} events of {', '.join(info.devices) or 'no device'} in {options.out}, {whose}")
    if not info.valid:
        print(f"traces.decode: the trace is not whole: {info.reason}", file=sys.stderr)
    return 0 if info.valid else 2


def _run_beside(out: Path) -> RunAttribution | None:
    """Attribution by the run whose folder OUT lies in; None where it lies in none."""
    return RunAttribution(out.parent) if all(out.with_name(name).exists() for name in FILES) else None


def _why_nobodys(source: str | None) -> str:
    reason = "another program wrote it" if source else f"no {' and '.join(FILES)} of its run lie beside it"
    return f"not attributed to tensors: {reason}"


if __name__ == "__main__":
    sys.exit(main())

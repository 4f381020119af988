"""Decode raw trace text into device_io.parquet: `python -m traces.decode RAW OUT [--format NAME]`.

A trace of this project names its format in its first line. With OUT in the folder of its run, commands are attributed
to the run's tensors and operations, as the harness does. Formats of other tools: blkparse, biosnoop, cheops25. Text is
read in blocks, and only recent commands are kept from one block to the next, so memory is bounded at any length.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dualblade.linux.files import replacing
from traces.attribution import FILES, RunAttribution, text_column
from traces.commands import Array, with_depths
from traces.devices import Devices
from traces.errors import TraceError
from traces.formats import biosnoop, blkparse, block_requests, cheops25, io_layers, nvme_commands
from traces.pairing import paired
from traces.schema import METADATA_KEY, OPERATIONS, SCHEMA, TraceInfo
from traces.text import LineCounts, blocks

HEADER_VERSION = 1

# Share of commands that a trace may lack: the kernel skips a probe when the interrupt that completes a command finds
# another probe running on its CPU.
MAX_MISSED = 0.02
MONOTONIC = "CLOCK_MONOTONIC"
SINCE_START = "since the tracer started"


class Parser(Protocol):
    """Return the commands, or events, of a block of text; count its other lines."""

    def __call__(self, block: bytes, devices: Devices, counts: LineCounts) -> Array: ...


@dataclass(frozen=True)
class Source:
    """A format of text, and what its lines hold: whole commands, events to be paired, or issues alone.

    `counted`: the text ends with the kernel's own count of the lines.
    """

    parse: Parser
    clock: str
    counted: bool = False
    lines: Literal["commands", "events", "issues"] = "commands"


SOURCES: Mapping[str, Source] = {
    "block_requests": Source(block_requests.parse, MONOTONIC, counted=True),
    "io_layers": Source(io_layers.parse, MONOTONIC, counted=True),
    "io_layers_nvme": Source(io_layers.parse_nvme, MONOTONIC, counted=True),
    "nvme_commands": Source(nvme_commands.parse, MONOTONIC, counted=True),
    "blkparse": Source(blkparse.parse, SINCE_START, lines="events"),
    "biosnoop": Source(biosnoop.parse, SINCE_START),
    "cheops25": Source(cheops25.parse, MONOTONIC, lines="issues"),
}


class Attribution(Protocol):
    """Finds the tensor whose bytes a command moves, and the operation that caused it."""

    def columns(self, commands: Array, device_names: list[str]) -> dict[str, pa.Array]:
        """Return the schema's columns from `layer` on."""
        ...


class NoAttribution:
    """Attribution of a trace whose run is not known."""

    def columns(self, commands: Array, device_names: list[str]) -> dict[str, pa.Array]:
        """Return -1 and "" everywhere."""
        n = len(commands)
        number, text = np.full(n, -1), np.zeros(n, np.int32)
        values: dict[str, pa.Array] = dict.fromkeys(("kind", "path", "phase"), text_column(text, [""]))
        return values | {name: pa.array(number) for name in ("layer", "tensor_offset_bytes", "iteration")}


def header(source: str, devices: Mapping[str, Any]) -> bytes:
    """Return the first line of a raw trace: the format of the lines after it, and the devices."""
    content = {"version": HEADER_VERSION, "source": source, "devices": devices}
    return b"#" + json.dumps(content).encode() + b"\n"


def decode(raw: Path, out: Path, source: str | None = None, attribution: Attribution | None = None) -> TraceInfo:
    """Write OUT, complete or not at all, and return what is known about the trace.

    Raises:
        TraceError: the text cannot be read, or is of no known format.
    """
    name, described = (source, {}) if source else read_header(raw)
    if name not in SOURCES:
        raise TraceError(f"{name} is no known format of a trace; use one of {', '.join(SOURCES)}")
    devices, counts = Devices(described), LineCounts()
    attribution = attribution or NoAttribution()
    with (
        replacing(out) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", compression_level=1) as writer,
    ):
        for commands in _commands(raw, SOURCES[name], devices, counts):
            writer.write_table(_table(commands, devices.names, attribution))
        info = judge(name, counts, {device: described.get(device, {}) for device in devices.names})
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(info.as_dict()).encode()})
    return info


def judge(name: str, counts: LineCounts, devices: dict[str, Any]) -> TraceInfo:
    """Return whether a trace is whole: a source with a count must have printed exactly what the kernel counted."""
    info = TraceInfo(
        source=name,
        clock=SOURCES[name].clock,
        valid=True,
        printed_events=counts.printed_events,
        counted_events=counts.counted_events,
        broken_lines=counts.broken_lines,
        missed_commands=_missed(counts),
        skipped_probes=counts.skipped_probes,
        requeues=counts.requeues,
        unmatched_issues=counts.unmatched_issues,
        unmatched_completions=counts.unmatched_completions,
        devices=devices,
    )
    reason = _fault(counts, counted=SOURCES[name].counted)
    return dataclasses.replace(info, valid=reason is None, reason=reason)


def _fault(counts: LineCounts, *, counted: bool) -> str | None:
    """Return why a trace cannot be used, in a sentence; None if it can."""
    broken = f", and {counts.broken_lines:,} lines could not be read" if counts.broken_lines else ""
    if not counted:
        if counts.broken_lines <= MAX_MISSED * (counts.printed_events + counts.broken_lines):
            return None
        return f"{counts.broken_lines:,} lines could not be read, the first is {counts.examples[0]!r}"
    if counts.counted_events is None:
        return f"the trace ends without the kernel's count of its events{broken}; was the tracer killed?"
    if counts.counted_events != counts.printed_events:
        return (
            f"the kernel counted {counts.counted_events:,} events and {counts.printed_events:,} were printed"
            f"{broken}; raise trace.buffer_pages"
        )
    missed = _missed(counts) or 0
    if missed > MAX_MISSED * counts.printed_events:
        return (
            f"the disks' own statistics count {missed:,} commands more than the {counts.printed_events:,} that were "
            "traced; run the point again"
        )
    if (counts.skipped_probes or 0) > MAX_MISSED * counts.printed_events:
        return (
            f"the kernel skipped a probe {counts.skipped_probes:,} times and {counts.printed_events:,} events were "
            "printed; run the point again"
        )
    return None


def _missed(counts: LineCounts) -> int | None:
    """Return the commands that the disks' own count has and the trace lacks. Only the trace has flushes."""
    return None if counts.completed is None else max(0, counts.completed - counts.printed_events)


def read_header(raw: Path) -> tuple[str, dict[str, Any]]:
    """Return the script that printed a raw trace, and the devices of the traced machine.

    Raises:
        TraceError: it does not begin with a header of this project.
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


def _commands(raw: Path, source: Source, devices: Devices, counts: LineCounts) -> Iterator[Array]:
    parsed = (source.parse(block, devices, counts) for block in blocks(raw))
    if source.lines == "commands":
        return with_depths(parsed)
    return paired(parsed, counts) if source.lines == "events" else parsed


def _table(commands: Array, device_names: list[str], attribution: Attribution) -> pa.Table:
    columns = {name: commands[name] for name in commands.dtype.names or ()} | {
        "device": text_column(commands["device"], device_names),
        "op": text_column(commands["op"], list(OPERATIONS)),
        **attribution.columns(commands, device_names),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def main(arguments: list[str] | None = None) -> int:
    """Print a line about the trace and return 0; 1 if it cannot be decoded, 2 if it is decoded but not whole."""
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
    how = f"attributed to the run in {options.out.parent}" if run else _why_not_attributed(options.format)
    print(f"{info.printed_events:,} events of {', '.join(info.devices) or 'no device'} in {options.out}, {how}")
    if not info.valid:
        print(f"traces.decode: the trace is not whole: {info.reason}", file=sys.stderr)
    return 0 if info.valid else 2


def _run_beside(out: Path) -> RunAttribution | None:
    """Return the attribution to the run in whose folder OUT lies; None if it lies in no run."""
    return RunAttribution(out.parent) if all(out.with_name(name).exists() for name in FILES) else None


def _why_not_attributed(source: str | None) -> str:
    reason = "another program wrote it" if source else f"no {' and '.join(FILES)} of its run lie beside it"
    return f"not attributed to tensors: {reason}"


if __name__ == "__main__":
    sys.exit(main())

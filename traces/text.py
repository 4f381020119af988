"""Raw trace text: read in blocks of lines. Each line is parsed, or counted as something else.

A block of ours is parsed in one go. If it holds a line that does not fit, its lines are looked at one by one. So the
time for a line does not depend on the length of the trace, and no line is dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc_csv

from traces.errors import TraceError

BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 16  # no line of a trace is longer; longer text is one broken line
MAX_EXAMPLES, EXAMPLE_BYTES = 3, 80

_REQUEUES = re.compile(rb"@requeues: (\d{1,18})")
_COMPLETED = re.compile(rb"#completed (\d{1,18})")
_SKIPPED = re.compile(rb"#skipped (\d{1,18})")
_IN_FLIGHT = re.compile(rb"@issued\[[\d, ]+\]: (\([\d, ]+\)|\d+)")
_COUNTED = re.compile(rb"@events: (\d{1,18})")
_NO_DATA = re.compile(rb"#.*|READY|Attaching \d+ probes?\.\.\.|Lost \d+ events|")


@dataclass
class LineCounts:
    """Numbers about the lines of a trace.

    `printed_events` counts the lines that hold an event or a command; `counted_events` is the kernel's count of them.
    `completed` counts the commands in the disks' own statistics, `skipped_probes` the probes that the kernel skipped.
    """

    printed_events: int = 0
    counted_events: int | None = None
    completed: int | None = None
    skipped_probes: int | None = None
    requeues: int = 0
    unmatched_issues: int = 0
    unmatched_completions: int = 0
    broken_lines: int = 0
    examples: list[str] = field(default_factory=list)

    def add_other(self, line: bytes) -> None:
        """Count a line that is not an event."""
        if match := _COUNTED.fullmatch(line):
            self.counted_events = int(match[1])
        elif match := _REQUEUES.fullmatch(line):
            self.requeues = int(match[1])
        elif match := _COMPLETED.fullmatch(line):
            self.completed = int(match[1])
        elif match := _SKIPPED.fullmatch(line):
            self.skipped_probes = int(match[1])
        elif _IN_FLIGHT.fullmatch(line):
            self.unmatched_issues += 1
        elif not _NO_DATA.fullmatch(line):
            self.add_broken(line)

    def add_broken(self, line: bytes) -> None:
        """Count a line that cannot be read, and keep the first few as examples."""
        self.broken_lines += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(line[:EXAMPLE_BYTES].decode(errors="replace"))


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines; the last one may lack its newline.

    Raises:
        TraceError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            rest = b""
            while chunk := file.read(block_bytes):
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield whole + newline
                elif len(rest) > MAX_LINE_BYTES:
                    yield rest + b"\n"
                    rest = b""
            if rest:
                yield rest
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from None


class LineFormat:
    """Lines of comma-separated values of fixed types."""

    def __init__(self, columns: dict[str, pa.DataType], pattern: bytes) -> None:
        self._columns = columns
        self._pattern = re.compile(pattern)

    def parse(self, block: bytes, counts: LineCounts) -> pa.Table:
        """Return the lines of a block that fit, one row each; count the others."""
        if not block.isascii():
            return self._parse_lines(block, counts)
        try:
            others: list[bytes] = []
            table = self._read(block, others)
        except pa.ArrowInvalid:
            return self._parse_lines(block, counts)
        for line in others:
            counts.add_other(line)
        return table

    def _parse_lines(self, block: bytes, counts: LineCounts) -> pa.Table:
        good = []
        for line in block.split(b"\n"):
            if self._pattern.fullmatch(line):
                good.append(line)
            else:
                counts.add_other(line)
        return self._read(b"\n".join(good) + b"\n", [])

    def _read(self, block: bytes, others: list[bytes]) -> pa.Table:
        """Parse; lines with another number of fields go to `others`."""

        def set_aside(row: pc_csv.InvalidRow) -> str:
            others.append(row.text.encode())
            return "skip"

        if not block.strip():
            return pa.schema(self._columns).empty_table()
        return pc_csv.read_csv(
            pa.BufferReader(block),
            # One block gives one dictionary. One thread keeps the order of the lines in `others`.
            read_options=pc_csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=list(self._columns)
            ),
            parse_options=pc_csv.ParseOptions(quote_char=False, invalid_row_handler=set_aside),
            convert_options=pc_csv.ConvertOptions(
                column_types=self._columns, strings_can_be_null=False, null_values=[]
            ),
        )


def matching_lines(
    block: bytes, pattern: re.Pattern[bytes], no_data: re.Pattern[bytes], counts: LineCounts
) -> Iterator[re.Match[bytes]]:
    """Yield the lines of a block that fit `pattern`; count those as broken that fit neither pattern."""
    for line in block.split(b"\n"):
        if match := pattern.fullmatch(line):
            yield match
        elif not no_data.fullmatch(line):
            counts.add_broken(line)


def fixed_point(text: bytes, digits: int) -> int:
    """Return a decimal number in units of 10^-digits, exactly: seconds in ns with digits=9, ms with 6."""
    whole, _, fraction = text.partition(b".")
    return int(whole + fraction.ljust(digits, b"0")[:digits])

"""Raw trace text: read block by block, each line either parsed or accounted for.

A block is parsed in one go. Only one that holds a line which does not fit is looked at line by line: that line is
counted, the others are parsed. So a trace costs the same whatever its length, and nothing is dropped silently.
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
MAX_LINE_BYTES = 1 << 16  # no line of a trace is longer; what is, is one broken line

_REQUEUES = re.compile(rb"@requeues: (\d{1,18})")
_COMPLETED = re.compile(rb"#completed (\d{1,18})")
_SKIPPED = re.compile(rb"#skipped (\d{1,18})")
_IN_FLIGHT = re.compile(rb"@issued\[[\d, ]+\]: (\([\d, ]+\)|\d+)")
_COUNTED = re.compile(rb"@events: (\d{1,18})")
_CHATTER = re.compile(rb"#.*|READY|Attaching \d+ probes?\.\.\.|Lost \d+ events|")


@dataclass
class Account:
    """What the lines of a trace add up to, and what those say that are no events.

    `counted_events` is the kernel's count of the lines, `completed` the commands that the disks' own statistics count,
    `skipped_probes` the kernel's count of probes that it did not run.
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

    def note(self, line: bytes) -> None:
        """Account for a line that is not an event."""
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
        elif not _CHATTER.fullmatch(line):
            self.broken(line)

    def broken(self, line: bytes) -> None:
        """Count a line that cannot be read; the first few are kept to be shown."""
        self.broken_lines += 1
        if len(self.examples) < 3:
            self.examples.append(line[:80].decode(errors="replace"))


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The file in blocks of whole lines; the last one may lack its newline.

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

    def parse(self, block: bytes, account: Account) -> pa.Table:
        """The events of a block."""
        if not block.isascii():
            return self._parse_lines(block, account)
        try:
            lines: list[bytes] = []
            table = self._read(block, lines)
        except pa.ArrowInvalid:
            return self._parse_lines(block, account)
        for line in lines:
            account.note(line)
        return table

    def _parse_lines(self, block: bytes, account: Account) -> pa.Table:
        good = []
        for line in block.split(b"\n"):
            if self._pattern.fullmatch(line):
                good.append(line)
            else:
                account.note(line)
        return self._read(b"\n".join(good) + b"\n", [])

    def _read(self, block: bytes, others: list[bytes]) -> pa.Table:
        """Parse; lines with another number of fields go to `others`."""

        def set_aside(row: pc_csv.InvalidRow) -> str:
            others.append(row.text.encode())
            return "skip"

        if not block.strip():
            return self._empty()
        return pc_csv.read_csv(
            pa.BufferReader(block),
            # One block for one dictionary; one thread, since the lines before the first event are looked at in order.
            read_options=pc_csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=list(self._columns)
            ),
            parse_options=pc_csv.ParseOptions(quote_char=False, invalid_row_handler=set_aside),
            convert_options=pc_csv.ConvertOptions(
                column_types=self._columns, strings_can_be_null=False, null_values=[]
            ),
        )

    def _empty(self) -> pa.Table:
        return pa.schema(self._columns).empty_table()

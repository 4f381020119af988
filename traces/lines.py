"""Lines of other programs' traces, one pattern each: what fits is a row, the rest is chatter or a broken line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traces.text import Account


def rows(
    block: bytes, pattern: re.Pattern[bytes], chatter: re.Pattern[bytes], account: Account
) -> Iterator[re.Match[bytes]]:
    """The lines of a block that fit `pattern` as a whole; those that fit neither are counted as broken."""
    for line in block.split(b"\n"):
        if match := pattern.fullmatch(line):
            yield match
        elif not chatter.fullmatch(line):
            account.broken(line)


def nanoseconds(text: bytes, digits: int) -> int:
    """A decimal number as a whole number of 10^-digits, exactly: seconds with digits=9, milliseconds with 6."""
    whole, _, fraction = text.partition(b".")
    return int(whole + fraction.ljust(digits, b"0")[:digits])

"""What can be wrong with a trace."""

from __future__ import annotations


class TraceError(Exception):
    """A trace cannot be taken, read or used; the message gives the cause, the value and the cure."""

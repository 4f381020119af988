"""What becomes of queued work: waiting for its end, whichever that is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future


def await_all(work: Iterable[Future[None]]) -> None:
    """Return when each is done, has failed or was dropped.

    `concurrent.futures.wait` never returns for work that was dropped before it began.
    """
    for future in work:
        with contextlib.suppress(CancelledError):
            future.exception()


def finish(work: Iterable[Future[None]]) -> Exception | None:
    """Wait as `await_all` does; the first error, if there was any."""
    first = None
    for future in work:
        try:
            future.result()
        except Exception as error:
            first = first or error
    return first

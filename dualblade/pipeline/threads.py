"""Threads that copy, and waiting for the work that was queued to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future

import torch

from dualblade.linux.libc import set_timer_slack

_one_at_a_time = threading.Lock()


def set_up_copy_thread() -> None:
    """Give torch one core in the calling thread, which has just started, and make its sleeps end on time.

    A copy is one stream of memory: if torch forked a team for it, the team would only take cores from other threads.
    torch also uses the number set in one thread for threads that start later, so this restores that default.
    """
    with _one_at_a_time:
        changed = threading.Event()
        restoring = threading.Thread(target=_set_num_threads, args=(torch.get_num_threads(), changed))
        restoring.start()  # before anything changes: the system may have no room for another thread
        torch.set_num_threads(1)
        changed.set()
        restoring.join()
    set_timer_slack(1)  # by default a sleep may end 50 us late (prctl(2))


def _set_num_threads(n_threads: int, when: threading.Event) -> None:
    when.wait()
    torch.set_num_threads(n_threads)


def start_thread(task: Callable[[], None]) -> threading.Thread:
    """Start a copy thread that runs `task`; it does not keep the process alive."""
    ready: Future[None] = Future()

    def run() -> None:
        try:
            set_up_copy_thread()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        task()

    thread = threading.Thread(target=run, name=f"ahead{task.__name__}", daemon=True)
    thread.start()
    ready.result()
    return thread


def await_all(work: Iterable[Future[None]]) -> None:
    """Wait until each is done, has failed or was cancelled.

    `concurrent.futures.wait` never returns for work that was cancelled before it began.
    """
    for future in work:
        with contextlib.suppress(CancelledError):
            future.exception()


def first_error(work: Iterable[Future[None]]) -> Exception | None:
    """Wait until all work has ended; return the first error, if there is one."""
    first = None
    for future in work:
        try:
            future.result()
        except Exception as error:
            first = first or error
    return first

"""What a thread that copies sets for itself when it starts."""

from __future__ import annotations

import threading

import torch

from dualblade.pipeline.link import precise_sleep

_one_at_a_time = threading.Lock()


def set_up_copy_thread() -> None:
    """In a thread that has just started: torch gets one core there, and sleeps end on time.

    A copy is one stream of memory; letting torch fork a team for it only takes the cores from the other threads. What
    torch is told in one thread is also what threads that start later begin with, so that is put back.
    """
    with _one_at_a_time:
        putting_back = threading.Thread(target=_tell, args=(torch.get_num_threads(), told := threading.Event()))
        putting_back.start()  # before anything changes: there may be no room for another thread
        torch.set_num_threads(1)
        told.set()
        putting_back.join()
    precise_sleep()


def _tell(n_threads: int, when: threading.Event) -> None:
    when.wait()
    torch.set_num_threads(n_threads)

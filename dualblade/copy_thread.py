"""What a thread that copies sets for itself when it starts."""

from __future__ import annotations

import threading

import torch

from dualblade.link import precise_sleep

_one_at_a_time = threading.Lock()


def set_up_copy_thread() -> None:
    """In a thread that has just started: torch gets one core there, and sleeps end on time.

    A copy is one stream of memory; letting torch fork a team for it only takes the cores from the other threads. What
    torch is told in one thread is also what threads that start later begin with, so that is put back.
    """
    with _one_at_a_time:
        others = torch.get_num_threads()
        torch.set_num_threads(1)
        putting_back = threading.Thread(target=torch.set_num_threads, args=(others,))
        putting_back.start()
        putting_back.join()
    precise_sleep()

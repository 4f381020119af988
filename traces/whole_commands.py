"""Sources whose lines are whole commands: each line becomes two events, so that depths are counted as for others."""

from __future__ import annotations

import numpy as np

from traces.events import COMPLETE, ISSUE, Events, Int, concatenate, make_events
from traces.text import Account


def both_events(account: Account, issue_ns: Int, complete_ns: Int, **columns: np.ndarray) -> Events:
    """Issue and completion of commands, one element each; a command issued before the trace began is only counted."""
    n = len(issue_ns)
    key = np.arange(account.printed_events, account.printed_events + n)
    account.printed_events += n
    known = (issue_ns != 0) & (issue_ns <= complete_ns)
    account.unmatched_completions += int(n - known.sum())
    issues = make_events(n, kind=ISSUE, ns=issue_ns, key=key, **columns).take(known)
    completions = make_events(n, kind=COMPLETE, ns=complete_ns, key=key, **columns).take(known)
    return concatenate([issues, completions])

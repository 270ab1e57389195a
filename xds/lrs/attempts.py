"""How many requests clients wanted to send, from what they report: issued, refused at the client, failed to connect."""

from __future__ import annotations


def attempted(issued: float, successes: float, errors: float, dropped: float) -> float:
    """The tries that clients made, those included that reached no endpoint. Nothing is counted twice.

    What Envoy 1.40 reports, measured with 100 requests (``tests/e2e/test_demand.py``):

    ====================================== ====== ========= ====== ======= ==============================
    what keeps requests from an endpoint   issued successes errors dropped tries
    ====================================== ====== ========= ====== ======= ==============================
    ``max_connections`` (requests wait)       100       100      0       0 issued
    ``max_pending_requests``                    3         3      0      97 issued + dropped
    ``max_requests``                            3         3     97      97 issued + dropped: the errors
                                                                           are the drops once more
    ``max_retries``                           106         0    106       0 issued: a retry that is not
                                                                           made is counted nowhere
    ``drop_overload`` of 50 %                  50        50      0      50 issued + dropped
    no connection                               0         0    100       0 errors: they were not issued
    retries, two each                         300         0    300       0 issued: each try is one
    ====================================== ====== ========= ====== ======= ==============================

    So errors that were not issued are either drops or failed connections. Reports do not tell which, so the larger of
    both counts: with ``max_requests`` and failed connections at once the result is too small, never too large.

    A client that does not report issued requests has those that ended counted. A request that was issued before the
    window and failed in it may count as not issued: the result is too large by it for that window.
    """
    unissued = min(max(successes + errors - issued, 0.0), errors)
    return (issued or successes) + max(dropped, unissued)


def failed(issued: float, successes: float, errors: float, dropped: float) -> float:
    """The tries that ended in an error or were dropped by the client. Nothing is counted twice, as in `attempted`."""
    unissued = min(max(successes + errors - issued, 0.0), errors)
    return errors - unissued + max(dropped, unissued)


def repeats_at_most(issued: float, successes: float, errors: float, in_progress: float = 0.0) -> float:
    """How many of the issued tries may be retries or hedges. Reports do not tell them from first tries.

    A retry follows a try that failed. Of hedged tries all but one are cancelled: they are issued and never end. So
    first tries are at least the issued ones without the failed and the unfinished ones. What is in progress is
    unfinished too, but no hedge yet.
    """
    unfinished = max(issued - successes - errors - in_progress, 0.0)
    return min(issued, errors + unfinished)

"""The constants of flow control, each with its reason, and the request rate limit.

See docs/internals/flow.md for the picture.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much work and how many bytes may be in each stage between the socket and the engine, and back.

    Reading

    * ``connection_slots``: new connections that are read at once. Envoy's first request has 61 kB: 5,000 connections
      would bring 300 MB into memory before the first of them is answered; 256 bring 16 MB.
    * ``frames_at_once``: HTTP/2 frames that are read from one connection in an iteration of the loop. 500 frames take
      some milliseconds; a client with one fast connection would otherwise hold the loop for as long as it sends.
    * ``streams_at_once``: streams that one connection opens in an iteration. Each takes 0.1 ms, with its task and its
      authentication: 500 streams would hold the loop for 50 ms.
    * ``abuse_per_s``, ``abuse_burst``: frames that advance no call (pings, resets, settings) per connection. Thousands
      of streams may open and close at once and clients ping with each round trip; one that opens and resets streams
      without end (CVE-2023-44487) exceeds this and is disconnected.
    * ``message_s``, ``message_bytes_per_s``: a request that is longer than the client's windows must arrive within this
      time, plus the time that its received bytes take at this rate, as a body of the HTTP port must.
    * ``closed_at_once``: lost connections whose calls are ended in an iteration. Ending a stream takes 200 us, and a
      network failure ends thousands at once.
    * ``inbox_requests``: requests of one stream that are not yet handled. With two, the next is read in time.
    * ``outbox_responses``: responses of one stream that are not yet written. At this number the stream is not read, so
      that a client that does not read costs bounded memory.

    Admission

    * ``admission_slots``: new streams whose first request is not yet answered. Each takes 1.4 ms of CPU, so that 128 of
      them delay established streams by 0.2 s (measured in docs/performance.md, reconnect storm).
    * ``slots_per_connection``: how many of them the streams of one connection have. A stream that sends nothing keeps
      its slot for ``first_message_s``; a connection that has only a quarter of the slots delays no other connection.
    * ``first_message_s``: a new stream or connection that sends nothing for this long gives up its slot. Real clients
      send the first message together with the connection.
    * ``first_answer_s``: the same after the first message has arrived. The loop is then overloaded, or the client
      sends slowly.

    Work queue

    * ``share_s``, ``share_items``: stream work in one iteration of the loop. A push to 1,000 streams is 60 ms of work
      (60 us each); an HTTP request or a push to another group waits 1.5 ms and one work item instead.
    * ``urgent_per_low``: work items that run between two low-priority ones while both are queued. Closing a stream
      takes 100 us: without the second queue, 5,000 closed streams would delay the reconnecting clients by 0.5 s.
    * ``long_item_s``: after an item that took longer, an iteration without stream work follows, since timers and
      sockets became ready meanwhile.
    * ``wake_batch``, ``wake_slice_s``: streams that a push wakes before the loop runs other work.
    * ``wake_pause_ratio``, ``wake_pause_s``: after a push has woken its streams, the next push waits twice as long as
      the waking took, but at most 0.2 s: ACKs take as long again, and other work needs its share.
    * ``busy_pause_s``, ``busy_poll_s``: the next push then waits until the work queue is empty, but at most 0.3 s: a
      reconnecting fleet fills the queue for seconds, and established streams must receive pushes meanwhile.
    * ``recheck_batch``: streams that are authorised again between two barriers after the rules have changed.

    Load reports

    * ``large_reports``: reports of more than one piece that are handled at once; the others wait in the transport.
    * ``report_work_share``, ``report_work_burst_s``: CPU time for the reports of one stream, on average and at once.
      A report of 1,000 clusters in 3 localities takes milliseconds.
    * ``report_read_s_per_byte``, ``report_count_s``: estimates of the time that a piece of a report takes to decode,
      and that counting takes between two pauses of `LoadAggregates.add_in_steps`. The work queue plans with them.
    * ``report_notify_s``, ``report_notify_batch``: changes of the requested clusters within 0.2 s are sent together, to
      this many streams between two barriers.

    Client status

    * ``status_nodes_at_once``: nodes that an answer of the status service describes in an iteration of the loop. One
      answer is made at a time.

    Writing

    * ``direct_write_bytes``: bodies up to this size are written at once if the client's windows and its socket take
      them, without the limiter. Copying so much takes the kernel some 50 us.
    * ``small_write_bytes``: bodies up to this size are not limited: a stream takes as much memory in any case.
    * ``write_bytes_at_once``: large bodies that are handed to the transport in one iteration. It copies 1 MB in 1 ms.
    * ``slow_write_s``: a large write that takes longer moves to the slow lane, and its client is remembered as slow.
    * ``slow_write_timeout_s``: how long a write in the slow lane may take while other slow clients wait.
    * ``slow_lane_share``: part of the limit of bytes in flight that slow clients share. Prompt clients have the rest.
    * ``slow_clients``: node ids that are remembered as slow.
    * ``rebalance_every_s``: how often slow writes are moved while a write waits.
    """

    connection_slots: int = 256
    frames_at_once: int = 500
    streams_at_once: int = 8
    abuse_per_s: float = 1_000.0
    abuse_burst: float = 20_000.0
    message_s: float = 30.0
    message_bytes_per_s: int = 64 << 10
    closed_at_once: int = 16
    inbox_requests: int = 2
    outbox_responses: int = 64

    admission_slots: int = 128
    slots_per_connection: int = 32
    first_message_s: float = 0.1
    first_answer_s: float = 1.0

    share_s: float = 0.0015
    share_items: int = 32
    urgent_per_low: int = 3
    long_item_s: float = 0.003
    wake_batch: int = 100
    wake_slice_s: float = 0.005
    wake_pause_ratio: float = 2.0
    wake_pause_s: float = 0.2
    busy_pause_s: float = 0.3
    busy_poll_s: float = 0.01
    recheck_batch: int = 100

    large_reports: int = 8
    report_work_share: float = 0.1
    report_work_burst_s: float = 1.0
    report_read_s_per_byte: float = 2e-8
    report_count_s: float = 0.002
    report_notify_s: float = 0.2
    report_notify_batch: int = 500

    status_nodes_at_once: int = 50

    direct_write_bytes: int = 128 * 1024
    small_write_bytes: int = 16 * 1024
    write_bytes_at_once: int = 4 << 20
    slow_write_s: float = 1.0
    slow_write_timeout_s: float = 10.0
    slow_lane_share: float = 0.25
    slow_clients: int = 10_000
    rebalance_every_s: float = 0.25


DEFAULT_FLOW = FlowLimits()


class RateLimit:
    """A rate limit with bursts, in one number (GCRA, the leaky bucket as a meter)."""

    __slots__ = ("_burst", "_full_at", "_per_s")  # the settings, which are shared

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._full_at = 0.0  # when all reserved units are used, at the rate without bursts

    def reserve(self, now: float, units: float = 1.0) -> float:
        """Reserve ``units`` and return how many seconds to wait before using them; 0 within the limit."""
        full_at = self._full_at
        self._full_at = full_at = (full_at if full_at > now else now) + units / self._per_s
        wait_s = full_at - now - self._burst / self._per_s
        return wait_s if wait_s > 0 else 0.0  # without `max`, which takes most of the time of an ACK here

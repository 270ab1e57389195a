"""Settings of make before break (DESIGN 3.2): how long what waits, and how long what was removed stays.

What they do is in ``transition`` (additions) and ``linger`` (removals); docs/configuration.md says what a user sees.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How pushes are ordered for a client. Times are in seconds.

    * ``ordered=False`` releases and removes everything at once (to show what the order is worth);
    * ``removal_delay_s``: what was removed stays so long after all is ACKed: retries and paused requests look clusters
      up again (Envoy's route timeout is 15 s);
    * ``listener_drain_s``: the same where a listener changed or went, besides: old connections stay on the old filter
      chain so long (Envoy's ``--drain-time-s``);
    * ``linger_max``: of how many pushes removed content is kept for a client;
    * ``order_timeout_s``: how long content waits for clusters whose warmth cannot be proved;
    * ``offer_timeout_s``: how long an ACK of clusters is waited for until clusters are looked at one by one;
    * ``return_s``: how long a client that comes back has to ask for all its types.
    """

    ordered: bool = True
    removal_delay_s: float = 15.0
    listener_drain_s: float = 600.0
    linger_max: int = 100
    order_timeout_s: float = 30.0
    offer_timeout_s: float = 5.0
    return_s: float = 2.0


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """What a group says itself; None where the server's setting holds.

    ``proceed_on_nack``: content goes out though a cluster it leads to was refused.
    """

    proceed_on_nack: bool | None = None
    removal_delay_s: float | None = None
    listener_drain_s: float | None = None


DEFAULT_ORDER = GroupOrder()

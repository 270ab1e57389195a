"""Settings of make-before-break: how long content waits, and how long removed content lingers.

``transition`` and ``readiness`` apply them to additions, ``removals`` to removals. docs/configuration.md explains them
to users.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How pushes are ordered for a client. Times are in seconds.

    * ``ordered``: False releases and removes everything at once (to measure what the order prevents);
    * ``removal_delay_s``: how long removed content lingers after everything else is ACKed, because retries and paused
      requests look clusters up again (Envoy's route timeout is 15 s);
    * ``listener_drain_s``: how much longer it lingers if a listener changed or was removed, because old connections
      stay on the old filter chain for that time (Envoy's ``--drain-time-s``);
    * ``linger_max``: the maximum number of pushes whose removed content lingers for a client;
    * ``order_timeout_s``: how long content waits for clusters that cannot be proved to be warm;
    * ``offer_timeout_s``: how long the engine waits for the ACK of a CDS response before it proves clusters one by one;
    * ``return_s``: how long a reconnected client has to request all its types.
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
    """The settings of one group; None for the setting of the server.

    ``proceed_on_nack``: content is sent even if the client rejected a cluster that the content refers to.
    """

    proceed_on_nack: bool | None = None
    removal_delay_s: float | None = None
    listener_drain_s: float | None = None


DEFAULT_ORDER = GroupOrder()

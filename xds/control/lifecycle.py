"""TODO."""

from enum import StrEnum


class Phase(StrEnum):
    """``STARTING`` until the stored state is loaded, ``DRAINING`` once it was told to end."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"

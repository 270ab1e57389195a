"""The server embedded in a Python program (docs/python.md)."""

from xds.embed.address import ServerAddress
from xds.embed.hooks import Hooks
from xds.embed.server import Server
from xds.fleet.event_log import FleetEvent
from xds.fleet.state import Convergence, NackRecord, NodeState
from xds.model.errors import ConflictError, EmptyingError, NotFoundError, ValidationError, Violation, XdsError
from xds.model.node import Locality, Node
from xds.push.progress import PushVerdict, verdict_of
from xds.push.request import PushResult, StillReferencedError
from xds.services.core.instance import Instance
from xds.services.core.source import Sink, Source, SourceError
from xds.settings.settings import SettingsError

__all__ = [
    "ConflictError",
    "Convergence",
    "EmptyingError",
    "FleetEvent",
    "Hooks",
    "Instance",
    "Locality",
    "NackRecord",
    "Node",
    "NodeState",
    "NotFoundError",
    "PushResult",
    "PushVerdict",
    "Server",
    "ServerAddress",
    "SettingsError",
    "Sink",
    "Source",
    "SourceError",
    "StillReferencedError",
    "ValidationError",
    "Violation",
    "XdsError",
    "verdict_of",
]

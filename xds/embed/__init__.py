"""The server embedded in a Python program (docs/python.md). Results and errors of its methods are in `xds.client`."""

from xds.admin.models.events import ServerEvent
from xds.embed.address import ServerAddress
from xds.embed.hooks import Hooks
from xds.embed.server import Server
from xds.model.errors import Violation
from xds.model.node import Locality, Node
from xds.services.core.instance import Instance
from xds.services.core.source import Sink, Source, SourceError
from xds.settings.settings import SettingsError

__all__ = [
    "Hooks",
    "Instance",
    "Locality",
    "Node",
    "Server",
    "ServerAddress",
    "ServerEvent",
    "SettingsError",
    "Sink",
    "Source",
    "SourceError",
    "Violation",
]

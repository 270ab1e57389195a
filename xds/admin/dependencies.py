"""What routes use of the server. The composition root makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, cast

from fastapi import Depends, Request

from xds.access.authorisation import Access
from xds.access.tokens import Tokens
from xds.admin.browser_rules import BrowserRules
from xds.admin.load_view import LoadView
from xds.admin.models.nodes import StreamAnswer
from xds.admin.other_servers import NoOthers, OtherServers
from xds.backup.backups import Backups
from xds.codec.resources import ResourceDecoder
from xds.fleet.fleet import Fleet
from xds.fleet.refused_streams import RecordRefusal, RefusedStreams, record_nothing
from xds.live.by_hand import HandAssignments
from xds.live.owners import EndpointOrigin
from xds.lrs.aggregates import LoadAggregates
from xds.model.errors import NotFoundError
from xds.model.units import MIB
from xds.push.directory import WatchedDirectory
from xds.push.publisher import Publisher
from xds.store.document_keys import Key
from xds.store.member_register import KnownMembers, Member
from xds.store.retention import StoreCondition
from xds.tasks.lifecycle import Phase
from xds.version import __version__

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Limits, credentials and addresses.

    * ``bodies_in_flight_bytes``: the limit on the bodies of all requests together;
    * ``decoder``: decodes pushes, with the limit on a resource;
    * ``tokens``: tokens with their scopes; without any, every caller has all scopes;
    * ``access``: rules for certificates and nodes in addition; it has the tokens, and ``tokens`` is not used;
    * ``wants_certificates``: the port asks for client certificates, so every request needs a credential;
    * ``browser``: which requests must prove that no foreign page made them;
    * ``envoy``: the binary for validation on request; None: there is none;
    * ``archive_bytes``: the limit on a restored archive; ``spool``: the directory that it is received in, by default
      that of temporary files;
    * ``config``: the answer of ``GET /config``;
    * ``grpc_address``, ``http_address``: for bootstraps; their ports may be known only after the start.
    """

    body_bytes: int = 64 * MIB
    bodies_in_flight_bytes: int = 256 * MIB
    decoder: ResourceDecoder = field(default_factory=ResourceDecoder)
    tokens: Tokens = field(default_factory=Tokens)
    access: Access | None = None
    wants_certificates: bool = False
    browser: BrowserRules = field(default_factory=BrowserRules)
    require_if_match: bool = False
    envoy: Path | None = None
    archive_bytes: int = 4 << 30
    spool: Path | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    grpc_address: Callable[[], tuple[str, int]] = lambda: ("127.0.0.1", 18000)
    http_address: Callable[[], tuple[str, int]] = lambda: ("127.0.0.1", 18080)

    def accepted(self) -> Access:
        """The access rules that apply now."""
        return self.access if self.access is not None else Access(self.tokens)


async def _nobody(node_ids: Collection[str], group: str = "") -> None:
    """The default for ``disconnect`` and ``let_go``: there are no streams."""


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """A row of a check of the server.

    ``find`` says whether all is well, and a detail; ``next`` is the command that shows more.
    """

    name: str
    find: Callable[[], tuple[bool, str]]
    next: str


class AnsweringFeature(Protocol):
    """What the admin API asks of a feature."""

    def stream_answers(self, node_id: str) -> Mapping[int, StreamAnswer]:
        """The last answers on the streams of a node that it serves, by the id of the stream."""

    def endpoint_origins(self, key: Key, owner: str) -> Sequence[EndpointOrigin] | None:
        """Where the endpoints of a live assignment come from; None if it is not one of the feature."""

    def checks(self) -> Iterable[ServerCheck]:
        """Its rows of a check of the server."""


@dataclass(slots=True)
class Dependencies:
    """What the routes of the application use.

    * ``load``: the reported load;
    * ``metrics``: renders the Prometheus text; it is called in a thread; ``phase``: the phase of the server;
    * ``limit_hits``: requests beyond a limit, by the name of its setting;
    * ``foreign_refused``: requests that `BrowserSafety` refused, by reason;
    * ``disconnect``: ends the streams of a node and returns their number;
    * ``let_go``: ends the lingering of removed resources for some nodes, and of a group that is not empty;
    * ``watched``: the watched directory; None: there is none;
    * ``bodies_in_flight``: bytes of the bodies of open requests; ``event_readers``: the number of event streams;
    * ``by_hand``: assignments that are set by hand;
    * ``features``: the features that are served;
    * ``condition``: the condition of the store;
    * ``refused``: the streams of proxies that were refused; ``refuse`` records one;
    * ``others``: the other servers of the installation; ``accepts``: whether a secret proves that one of them asks;
    * ``members``: all servers of the installation, as this one knows them.
    """

    publisher: Publisher
    fleet: Fleet
    metrics: Callable[[], bytes]
    phase: Callable[[], Phase]
    options: ApiOptions = field(default_factory=ApiOptions)
    limit_hits: Counter[str] = field(default_factory=Counter)
    disconnect: Callable[[str], int] = lambda node_id: 0
    let_go: Callable[[Collection[str], str], Awaitable[None]] = _nobody
    load: LoadView = field(default_factory=lambda: LoadView(LoadAggregates()))
    watched: Callable[[], WatchedDirectory | None] = lambda: None
    bodies_in_flight: int = 0
    event_readers: int = 0
    foreign_refused: Counter[str] = field(default_factory=Counter)
    by_hand: HandAssignments = field(kw_only=True)
    features: Sequence[AnsweringFeature] = ()
    backups: Backups = field(kw_only=True)
    condition: Callable[[], StoreCondition] = field(kw_only=True)
    refused: RefusedStreams = field(default_factory=RefusedStreams)
    refuse: RecordRefusal = record_nothing
    others: OtherServers = field(default_factory=NoOthers)
    accepts: Callable[[str], bool] = lambda secret: False
    members: Callable[[], KnownMembers] = lambda: KnownMembers(Member("", "", __version__))

    def feature(self, kind: type[F], name: str) -> F:
        """The feature of this class. Raises ``NotFoundError`` if it is not served."""
        for each in self.features:
            if isinstance(each, kind):
                return each
        raise NotFoundError(f"{name} is not served")


def dependencies_of(request: Request) -> Dependencies:
    """Those of the application that received the request."""
    return cast(Dependencies, request.app.state.dependencies)


async def _dependencies(request: Request) -> Dependencies:
    """As a dependency of a route. FastAPI would call a plain function in a thread, so this is a coroutine."""
    return dependencies_of(request)


Deps = Annotated[Dependencies, Depends(_dependencies)]

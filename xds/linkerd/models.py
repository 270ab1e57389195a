"""The JSON of Linkerd's side: the answers to its proxies, and the configuration that its API cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied

if TYPE_CHECKING:
    from xds.linkerd.core.endpoint import DestinationEndpoint
    from xds.linkerd.core.resolver import ProfileAnswer, StateAnswer

ENDPOINTS_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredEndpoint:
    """An endpoint of a destination.

    * ``address``: its IP address;
    * ``port``: its port;
    * ``weight``: its weight; 10000 for one without a weight of its own;
    * ``zone``: its zone; empty if it is not known;
    * ``identity``: its TLS identity in the mesh; empty outside of a mesh;
    * ``protocol``: ``h2`` for a proxy that takes HTTP/1 in HTTP/2, ``opaque`` for streams of bytes; empty if it is not
      known;
    * ``labels``: its labels for metrics.
    """

    schema_name: ClassVar[str] = "DestinationEndpointItem"

    address: str
    port: int
    weight: int
    zone: str
    identity: str
    protocol: str
    labels: Mapping[str, str]

    @classmethod
    def from_domain(cls, one: DestinationEndpoint) -> AnsweredEndpoint:
        """An endpoint of a destination."""
        return copied(cls, one, identity=one.mesh.identity, protocol=one.mesh.hint.value, labels=dict(one.labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOverride:
    """Another destination that gets requests instead.

    * ``authority``: its name and port;
    * ``weight``: its weight among the overrides; 10000 are all requests.
    """

    schema_name: ClassVar[str] = "OverrideItem"

    authority: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRoute:
    """A route of a profile.

    * ``name``: its name;
    * ``path_regex``: the regular expression that the whole path matches;
    * ``methods``: the HTTP methods; empty: all;
    * ``is_retryable``: whether failed requests are sent again;
    * ``timeout_s``: its timeout; 0: none.
    """

    schema_name: ClassVar[str] = "ProfileRouteItem"

    name: str
    path_regex: str
    methods: tuple[str, ...]
    is_retryable: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationProfile:
    """The profile of a destination.

    * ``name``: the fully qualified name of the service; empty for an address;
    * ``is_opaque``: whether connections are streams of bytes;
    * ``routes``: its routes, the first that matches applies;
    * ``overrides``: destinations that get requests instead; empty: none;
    * ``endpoint``: the single endpoint of an address; null for a service.
    """

    schema_name: ClassVar[str] = "ProfileItem"

    name: str
    is_opaque: bool
    routes: tuple[AnsweredRoute, ...]
    overrides: tuple[ProfileOverride, ...]
    endpoint: AnsweredEndpoint | None

    @classmethod
    def from_domain(cls, answer: ProfileAnswer) -> DestinationProfile:
        """The profile of a destination."""
        profile = answer.profile
        return copied(
            cls,
            profile,
            routes=tuple(
                copied(
                    AnsweredRoute,
                    route,
                    path_regex=route.condition.path_regex,
                    methods=route.condition.methods,
                    is_retryable=bool(route.failures),
                )
                for route in profile.routes
            ),
            endpoint=AnsweredEndpoint.from_domain(profile.endpoint) if profile.endpoint is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationAnswer:
    """The answers to a Linkerd proxy for a destination.

    * ``authority``: the name or address, as the server reads it;
    * ``group``: the group of the proxy; empty if no group matches;
    * ``source``: the service, cluster or instance behind the answer; ``nothing`` for none;
    * ``is_known``: false while the answer is not known yet;
    * ``exists``: false if there is no such destination;
    * ``endpoints``: the first thousand endpoints; empty for an address;
    * ``endpoints_total``: the number of endpoints;
    * ``profile``: the profile;
    * ``skipped``: configuration that Linkerd's API cannot express, each with the reason.
    """

    schema_name: ClassVar[str] = "DestinationItem"

    authority: str
    group: str
    source: str
    is_known: bool
    exists: bool
    endpoints: tuple[AnsweredEndpoint, ...]
    endpoints_total: int
    profile: DestinationProfile
    skipped: tuple[str, ...]

    @classmethod
    def from_domain(
        cls, authority: str, group: str, state: StateAnswer | None, profile: ProfileAnswer
    ) -> DestinationAnswer:
        """The answers about a destination. ``state`` is None for an address, which has a profile only."""
        held = state.state if state is not None else None
        endpoints = held.endpoints if held is not None else ()
        skipped = (*(state.skipped if state is not None else ()), *profile.skipped)
        return cls(
            authority=authority,
            group=group,
            source=(state.source if state is not None else "") or profile.source,
            is_known=state is None or held is not None,
            exists=held.exists if held is not None else profile.source != "nothing",
            endpoints=tuple(map(AnsweredEndpoint.from_domain, endpoints[:ENDPOINTS_SHOWN])),
            endpoints_total=len(endpoints),
            profile=DestinationProfile.from_domain(profile),
            skipped=tuple(dict.fromkeys(skipped)),
        )

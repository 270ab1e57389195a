import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from xds.linkerd.proto import http_route_pb2 as _http_route_pb2
from xds.linkerd.proto import meta_pb2 as _meta_pb2
from xds.linkerd.proto import net_pb2 as _net_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PortSpec(_message.Message):
    __slots__ = ("workload", "port")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    workload: str
    port: int
    def __init__(self, workload: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Server(_message.Message):
    __slots__ = ("protocol", "server_ips", "authorizations", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_IPS_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    protocol: ProxyProtocol
    server_ips: _containers.RepeatedCompositeFieldContainer[_net_pb2.IPAddress]
    authorizations: _containers.RepeatedCompositeFieldContainer[Authz]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, protocol: _Optional[_Union[ProxyProtocol, _Mapping[str, object]]] = ..., server_ips: _Optional[_Iterable[_Union[_net_pb2.IPAddress, _Mapping[str, object]]]] = ..., authorizations: _Optional[_Iterable[_Union[Authz, _Mapping[str, object]]]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProxyProtocol(_message.Message):
    __slots__ = ("detect", "opaque", "tls")
    class Detect(_message.Message):
        __slots__ = ("timeout", "http_routes")
        TIMEOUT_FIELD_NUMBER: _ClassVar[int]
        HTTP_ROUTES_FIELD_NUMBER: _ClassVar[int]
        timeout: _duration_pb2.Duration
        http_routes: _containers.RepeatedCompositeFieldContainer[HttpRoute]
        def __init__(self, timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., http_routes: _Optional[_Iterable[_Union[HttpRoute, _Mapping[str, object]]]] = ...) -> None: ...
    class Opaque(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Tls(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    DETECT_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    detect: ProxyProtocol.Detect
    opaque: ProxyProtocol.Opaque
    tls: ProxyProtocol.Tls
    def __init__(self, detect: _Optional[_Union[ProxyProtocol.Detect, _Mapping[str, object]]] = ..., opaque: _Optional[_Union[ProxyProtocol.Opaque, _Mapping[str, object]]] = ..., tls: _Optional[_Union[ProxyProtocol.Tls, _Mapping[str, object]]] = ...) -> None: ...

class HttpRoute(_message.Message):
    __slots__ = ("metadata", "hosts", "authorizations", "rules")
    class Rule(_message.Message):
        __slots__ = ("matches",)
        MATCHES_FIELD_NUMBER: _ClassVar[int]
        matches: _containers.RepeatedCompositeFieldContainer[_http_route_pb2.HttpRouteMatch]
        def __init__(self, matches: _Optional[_Iterable[_Union[_http_route_pb2.HttpRouteMatch, _Mapping[str, object]]]] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATIONS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.Metadata
    hosts: _containers.RepeatedCompositeFieldContainer[_http_route_pb2.HostMatch]
    authorizations: _containers.RepeatedCompositeFieldContainer[Authz]
    rules: _containers.RepeatedCompositeFieldContainer[HttpRoute.Rule]
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ..., hosts: _Optional[_Iterable[_Union[_http_route_pb2.HostMatch, _Mapping[str, object]]]] = ..., authorizations: _Optional[_Iterable[_Union[Authz, _Mapping[str, object]]]] = ..., rules: _Optional[_Iterable[_Union[HttpRoute.Rule, _Mapping[str, object]]]] = ...) -> None: ...

class Authz(_message.Message):
    __slots__ = ("networks", "authentication", "labels", "metadata")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    networks: _containers.RepeatedCompositeFieldContainer[Network]
    authentication: Authn
    labels: _containers.ScalarMap[str, str]
    metadata: _meta_pb2.Metadata
    def __init__(self, networks: _Optional[_Iterable[_Union[Network, _Mapping[str, object]]]] = ..., authentication: _Optional[_Union[Authn, _Mapping[str, object]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ...) -> None: ...

class Network(_message.Message):
    __slots__ = ("net",)
    NET_FIELD_NUMBER: _ClassVar[int]
    EXCEPT_FIELD_NUMBER: _ClassVar[int]
    net: _net_pb2.IPNetwork
    def __init__(self, net: _Optional[_Union[_net_pb2.IPNetwork, _Mapping[str, object]]] = ..., **kwargs: object) -> None: ...

class Authn(_message.Message):
    __slots__ = ("unauthenticated", "meshTLS")
    class PermitUnauthenticated(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class PermitMeshTLS(_message.Message):
        __slots__ = ("unauthenticated", "identities")
        class PermitClientIdentities(_message.Message):
            __slots__ = ("identities", "suffixes")
            IDENTITIES_FIELD_NUMBER: _ClassVar[int]
            SUFFIXES_FIELD_NUMBER: _ClassVar[int]
            identities: _containers.RepeatedCompositeFieldContainer[Identity]
            suffixes: _containers.RepeatedCompositeFieldContainer[IdentitySuffix]
            def __init__(self, identities: _Optional[_Iterable[_Union[Identity, _Mapping[str, object]]]] = ..., suffixes: _Optional[_Iterable[_Union[IdentitySuffix, _Mapping[str, object]]]] = ...) -> None: ...
        UNAUTHENTICATED_FIELD_NUMBER: _ClassVar[int]
        IDENTITIES_FIELD_NUMBER: _ClassVar[int]
        unauthenticated: Authn.PermitUnauthenticated
        identities: Authn.PermitMeshTLS.PermitClientIdentities
        def __init__(self, unauthenticated: _Optional[_Union[Authn.PermitUnauthenticated, _Mapping[str, object]]] = ..., identities: _Optional[_Union[Authn.PermitMeshTLS.PermitClientIdentities, _Mapping[str, object]]] = ...) -> None: ...
    UNAUTHENTICATED_FIELD_NUMBER: _ClassVar[int]
    MESHTLS_FIELD_NUMBER: _ClassVar[int]
    unauthenticated: Authn.PermitUnauthenticated
    meshTLS: Authn.PermitMeshTLS
    def __init__(self, unauthenticated: _Optional[_Union[Authn.PermitUnauthenticated, _Mapping[str, object]]] = ..., meshTLS: _Optional[_Union[Authn.PermitMeshTLS, _Mapping[str, object]]] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class IdentitySuffix(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parts: _Optional[_Iterable[str]] = ...) -> None: ...

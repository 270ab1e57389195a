import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from xds.linkerd.proto import destination_pb2 as _destination_pb2
from xds.linkerd.proto import http_route_pb2 as _http_route_pb2
from xds.linkerd.proto import meta_pb2 as _meta_pb2
from xds.linkerd.proto import net_pb2 as _net_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrafficSpec(_message.Message):
    __slots__ = ("source_workload", "addr", "authority")
    SOURCE_WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    ADDR_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    source_workload: str
    addr: _net_pb2.TcpAddress
    authority: str
    def __init__(self, source_workload: _Optional[str] = ..., addr: _Optional[_Union[_net_pb2.TcpAddress, _Mapping[str, object]]] = ..., authority: _Optional[str] = ...) -> None: ...

class OutboundPolicy(_message.Message):
    __slots__ = ("protocol", "metadata")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    protocol: ProxyProtocol
    metadata: _meta_pb2.Metadata
    def __init__(self, protocol: _Optional[_Union[ProxyProtocol, _Mapping[str, object]]] = ..., metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ...) -> None: ...

class ProxyProtocol(_message.Message):
    __slots__ = ("detect", "opaque", "http1", "http2")
    class Detect(_message.Message):
        __slots__ = ("timeout", "opaque", "http1", "http2")
        TIMEOUT_FIELD_NUMBER: _ClassVar[int]
        OPAQUE_FIELD_NUMBER: _ClassVar[int]
        HTTP1_FIELD_NUMBER: _ClassVar[int]
        HTTP2_FIELD_NUMBER: _ClassVar[int]
        timeout: _duration_pb2.Duration
        opaque: ProxyProtocol.Opaque
        http1: ProxyProtocol.Http1
        http2: ProxyProtocol.Http2
        def __init__(self, timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., opaque: _Optional[_Union[ProxyProtocol.Opaque, _Mapping[str, object]]] = ..., http1: _Optional[_Union[ProxyProtocol.Http1, _Mapping[str, object]]] = ..., http2: _Optional[_Union[ProxyProtocol.Http2, _Mapping[str, object]]] = ...) -> None: ...
    class Opaque(_message.Message):
        __slots__ = ("routes",)
        ROUTES_FIELD_NUMBER: _ClassVar[int]
        routes: _containers.RepeatedCompositeFieldContainer[OpaqueRoute]
        def __init__(self, routes: _Optional[_Iterable[_Union[OpaqueRoute, _Mapping[str, object]]]] = ...) -> None: ...
    class Http1(_message.Message):
        __slots__ = ("routes", "failure_accrual")
        ROUTES_FIELD_NUMBER: _ClassVar[int]
        FAILURE_ACCRUAL_FIELD_NUMBER: _ClassVar[int]
        routes: _containers.RepeatedCompositeFieldContainer[HttpRoute]
        failure_accrual: FailureAccrual
        def __init__(self, routes: _Optional[_Iterable[_Union[HttpRoute, _Mapping[str, object]]]] = ..., failure_accrual: _Optional[_Union[FailureAccrual, _Mapping[str, object]]] = ...) -> None: ...
    class Http2(_message.Message):
        __slots__ = ("routes", "failure_accrual")
        ROUTES_FIELD_NUMBER: _ClassVar[int]
        FAILURE_ACCRUAL_FIELD_NUMBER: _ClassVar[int]
        routes: _containers.RepeatedCompositeFieldContainer[HttpRoute]
        failure_accrual: FailureAccrual
        def __init__(self, routes: _Optional[_Iterable[_Union[HttpRoute, _Mapping[str, object]]]] = ..., failure_accrual: _Optional[_Union[FailureAccrual, _Mapping[str, object]]] = ...) -> None: ...
    DETECT_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_FIELD_NUMBER: _ClassVar[int]
    HTTP1_FIELD_NUMBER: _ClassVar[int]
    HTTP2_FIELD_NUMBER: _ClassVar[int]
    detect: ProxyProtocol.Detect
    opaque: ProxyProtocol.Opaque
    http1: ProxyProtocol.Http1
    http2: ProxyProtocol.Http2
    def __init__(self, detect: _Optional[_Union[ProxyProtocol.Detect, _Mapping[str, object]]] = ..., opaque: _Optional[_Union[ProxyProtocol.Opaque, _Mapping[str, object]]] = ..., http1: _Optional[_Union[ProxyProtocol.Http1, _Mapping[str, object]]] = ..., http2: _Optional[_Union[ProxyProtocol.Http2, _Mapping[str, object]]] = ...) -> None: ...

class HttpRoute(_message.Message):
    __slots__ = ("metadata", "hosts", "rules")
    class Rule(_message.Message):
        __slots__ = ("matches", "filters", "backends", "timeouts", "retry", "allow_l5d_request_headers")
        MATCHES_FIELD_NUMBER: _ClassVar[int]
        FILTERS_FIELD_NUMBER: _ClassVar[int]
        BACKENDS_FIELD_NUMBER: _ClassVar[int]
        TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
        RETRY_FIELD_NUMBER: _ClassVar[int]
        ALLOW_L5D_REQUEST_HEADERS_FIELD_NUMBER: _ClassVar[int]
        matches: _containers.RepeatedCompositeFieldContainer[_http_route_pb2.HttpRouteMatch]
        filters: _containers.RepeatedCompositeFieldContainer[HttpRoute.Filter]
        backends: HttpRoute.Distribution
        timeouts: _http_route_pb2.Timeouts
        retry: HttpRoute.Retry
        allow_l5d_request_headers: bool
        def __init__(self, matches: _Optional[_Iterable[_Union[_http_route_pb2.HttpRouteMatch, _Mapping[str, object]]]] = ..., filters: _Optional[_Iterable[_Union[HttpRoute.Filter, _Mapping[str, object]]]] = ..., backends: _Optional[_Union[HttpRoute.Distribution, _Mapping[str, object]]] = ..., timeouts: _Optional[_Union[_http_route_pb2.Timeouts, _Mapping[str, object]]] = ..., retry: _Optional[_Union[HttpRoute.Retry, _Mapping[str, object]]] = ..., allow_l5d_request_headers: _Optional[bool] = ...) -> None: ...
    class Filter(_message.Message):
        __slots__ = ("request_header_modifier", "response_header_modifier")
        REQUEST_HEADER_MODIFIER_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_HEADER_MODIFIER_FIELD_NUMBER: _ClassVar[int]
        request_header_modifier: _http_route_pb2.RequestHeaderModifier
        response_header_modifier: _http_route_pb2.ResponseHeaderModifier
        def __init__(self, request_header_modifier: _Optional[_Union[_http_route_pb2.RequestHeaderModifier, _Mapping[str, object]]] = ..., response_header_modifier: _Optional[_Union[_http_route_pb2.ResponseHeaderModifier, _Mapping[str, object]]] = ...) -> None: ...
    class Distribution(_message.Message):
        __slots__ = ("empty", "first_available", "random_available")
        class Empty(_message.Message):
            __slots__ = ()
            def __init__(self) -> None: ...
        class FirstAvailable(_message.Message):
            __slots__ = ("backends",)
            BACKENDS_FIELD_NUMBER: _ClassVar[int]
            backends: _containers.RepeatedCompositeFieldContainer[HttpRoute.RouteBackend]
            def __init__(self, backends: _Optional[_Iterable[_Union[HttpRoute.RouteBackend, _Mapping[str, object]]]] = ...) -> None: ...
        class RandomAvailable(_message.Message):
            __slots__ = ("backends",)
            BACKENDS_FIELD_NUMBER: _ClassVar[int]
            backends: _containers.RepeatedCompositeFieldContainer[HttpRoute.WeightedRouteBackend]
            def __init__(self, backends: _Optional[_Iterable[_Union[HttpRoute.WeightedRouteBackend, _Mapping[str, object]]]] = ...) -> None: ...
        EMPTY_FIELD_NUMBER: _ClassVar[int]
        FIRST_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
        RANDOM_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
        empty: HttpRoute.Distribution.Empty
        first_available: HttpRoute.Distribution.FirstAvailable
        random_available: HttpRoute.Distribution.RandomAvailable
        def __init__(self, empty: _Optional[_Union[HttpRoute.Distribution.Empty, _Mapping[str, object]]] = ..., first_available: _Optional[_Union[HttpRoute.Distribution.FirstAvailable, _Mapping[str, object]]] = ..., random_available: _Optional[_Union[HttpRoute.Distribution.RandomAvailable, _Mapping[str, object]]] = ...) -> None: ...
    class Retry(_message.Message):
        __slots__ = ("max_retries", "max_request_bytes", "conditions", "timeout", "backoff")
        class Conditions(_message.Message):
            __slots__ = ("status_ranges",)
            class StatusRange(_message.Message):
                __slots__ = ("start", "end")
                START_FIELD_NUMBER: _ClassVar[int]
                END_FIELD_NUMBER: _ClassVar[int]
                start: int
                end: int
                def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
            STATUS_RANGES_FIELD_NUMBER: _ClassVar[int]
            status_ranges: _containers.RepeatedCompositeFieldContainer[HttpRoute.Retry.Conditions.StatusRange]
            def __init__(self, status_ranges: _Optional[_Iterable[_Union[HttpRoute.Retry.Conditions.StatusRange, _Mapping[str, object]]]] = ...) -> None: ...
        MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
        MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
        CONDITIONS_FIELD_NUMBER: _ClassVar[int]
        TIMEOUT_FIELD_NUMBER: _ClassVar[int]
        BACKOFF_FIELD_NUMBER: _ClassVar[int]
        max_retries: int
        max_request_bytes: int
        conditions: HttpRoute.Retry.Conditions
        timeout: _duration_pb2.Duration
        backoff: ExponentialBackoff
        def __init__(self, max_retries: _Optional[int] = ..., max_request_bytes: _Optional[int] = ..., conditions: _Optional[_Union[HttpRoute.Retry.Conditions, _Mapping[str, object]]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., backoff: _Optional[_Union[ExponentialBackoff, _Mapping[str, object]]] = ...) -> None: ...
    class RouteBackend(_message.Message):
        __slots__ = ("backend", "filters")
        BACKEND_FIELD_NUMBER: _ClassVar[int]
        FILTERS_FIELD_NUMBER: _ClassVar[int]
        backend: Backend
        filters: _containers.RepeatedCompositeFieldContainer[HttpRoute.Filter]
        def __init__(self, backend: _Optional[_Union[Backend, _Mapping[str, object]]] = ..., filters: _Optional[_Iterable[_Union[HttpRoute.Filter, _Mapping[str, object]]]] = ...) -> None: ...
    class WeightedRouteBackend(_message.Message):
        __slots__ = ("backend", "weight")
        BACKEND_FIELD_NUMBER: _ClassVar[int]
        WEIGHT_FIELD_NUMBER: _ClassVar[int]
        backend: HttpRoute.RouteBackend
        weight: int
        def __init__(self, backend: _Optional[_Union[HttpRoute.RouteBackend, _Mapping[str, object]]] = ..., weight: _Optional[int] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.Metadata
    hosts: _containers.RepeatedCompositeFieldContainer[_http_route_pb2.HostMatch]
    rules: _containers.RepeatedCompositeFieldContainer[HttpRoute.Rule]
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ..., hosts: _Optional[_Iterable[_Union[_http_route_pb2.HostMatch, _Mapping[str, object]]]] = ..., rules: _Optional[_Iterable[_Union[HttpRoute.Rule, _Mapping[str, object]]]] = ...) -> None: ...

class OpaqueRoute(_message.Message):
    __slots__ = ("metadata", "rules")
    class Rule(_message.Message):
        __slots__ = ("backends",)
        BACKENDS_FIELD_NUMBER: _ClassVar[int]
        backends: OpaqueRoute.Distribution
        def __init__(self, backends: _Optional[_Union[OpaqueRoute.Distribution, _Mapping[str, object]]] = ...) -> None: ...
    class Distribution(_message.Message):
        __slots__ = ("empty", "first_available", "random_available")
        class Empty(_message.Message):
            __slots__ = ()
            def __init__(self) -> None: ...
        class FirstAvailable(_message.Message):
            __slots__ = ("backends",)
            BACKENDS_FIELD_NUMBER: _ClassVar[int]
            backends: _containers.RepeatedCompositeFieldContainer[OpaqueRoute.RouteBackend]
            def __init__(self, backends: _Optional[_Iterable[_Union[OpaqueRoute.RouteBackend, _Mapping[str, object]]]] = ...) -> None: ...
        class RandomAvailable(_message.Message):
            __slots__ = ("backends",)
            BACKENDS_FIELD_NUMBER: _ClassVar[int]
            backends: _containers.RepeatedCompositeFieldContainer[OpaqueRoute.WeightedRouteBackend]
            def __init__(self, backends: _Optional[_Iterable[_Union[OpaqueRoute.WeightedRouteBackend, _Mapping[str, object]]]] = ...) -> None: ...
        EMPTY_FIELD_NUMBER: _ClassVar[int]
        FIRST_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
        RANDOM_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
        empty: OpaqueRoute.Distribution.Empty
        first_available: OpaqueRoute.Distribution.FirstAvailable
        random_available: OpaqueRoute.Distribution.RandomAvailable
        def __init__(self, empty: _Optional[_Union[OpaqueRoute.Distribution.Empty, _Mapping[str, object]]] = ..., first_available: _Optional[_Union[OpaqueRoute.Distribution.FirstAvailable, _Mapping[str, object]]] = ..., random_available: _Optional[_Union[OpaqueRoute.Distribution.RandomAvailable, _Mapping[str, object]]] = ...) -> None: ...
    class RouteBackend(_message.Message):
        __slots__ = ("backend",)
        BACKEND_FIELD_NUMBER: _ClassVar[int]
        backend: Backend
        def __init__(self, backend: _Optional[_Union[Backend, _Mapping[str, object]]] = ...) -> None: ...
    class WeightedRouteBackend(_message.Message):
        __slots__ = ("backend", "weight")
        BACKEND_FIELD_NUMBER: _ClassVar[int]
        WEIGHT_FIELD_NUMBER: _ClassVar[int]
        backend: OpaqueRoute.RouteBackend
        weight: int
        def __init__(self, backend: _Optional[_Union[OpaqueRoute.RouteBackend, _Mapping[str, object]]] = ..., weight: _Optional[int] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.Metadata
    rules: _containers.RepeatedCompositeFieldContainer[OpaqueRoute.Rule]
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ..., rules: _Optional[_Iterable[_Union[OpaqueRoute.Rule, _Mapping[str, object]]]] = ...) -> None: ...

class Backend(_message.Message):
    __slots__ = ("metadata", "forward", "balancer", "queue")
    class EndpointDiscovery(_message.Message):
        __slots__ = ("dst",)
        class DestinationGet(_message.Message):
            __slots__ = ("path",)
            PATH_FIELD_NUMBER: _ClassVar[int]
            path: str
            def __init__(self, path: _Optional[str] = ...) -> None: ...
        DST_FIELD_NUMBER: _ClassVar[int]
        dst: Backend.EndpointDiscovery.DestinationGet
        def __init__(self, dst: _Optional[_Union[Backend.EndpointDiscovery.DestinationGet, _Mapping[str, object]]] = ...) -> None: ...
    class BalanceP2c(_message.Message):
        __slots__ = ("discovery", "peak_ewma")
        class PeakEwma(_message.Message):
            __slots__ = ("default_rtt", "decay")
            DEFAULT_RTT_FIELD_NUMBER: _ClassVar[int]
            DECAY_FIELD_NUMBER: _ClassVar[int]
            default_rtt: _duration_pb2.Duration
            decay: _duration_pb2.Duration
            def __init__(self, default_rtt: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., decay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ...) -> None: ...
        DISCOVERY_FIELD_NUMBER: _ClassVar[int]
        PEAK_EWMA_FIELD_NUMBER: _ClassVar[int]
        discovery: Backend.EndpointDiscovery
        peak_ewma: Backend.BalanceP2c.PeakEwma
        def __init__(self, discovery: _Optional[_Union[Backend.EndpointDiscovery, _Mapping[str, object]]] = ..., peak_ewma: _Optional[_Union[Backend.BalanceP2c.PeakEwma, _Mapping[str, object]]] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    BALANCER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.Metadata
    forward: _destination_pb2.WeightedAddr
    balancer: Backend.BalanceP2c
    queue: Queue
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.Metadata, _Mapping[str, object]]] = ..., forward: _Optional[_Union[_destination_pb2.WeightedAddr, _Mapping[str, object]]] = ..., balancer: _Optional[_Union[Backend.BalanceP2c, _Mapping[str, object]]] = ..., queue: _Optional[_Union[Queue, _Mapping[str, object]]] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("capacity", "failfast_timeout")
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    FAILFAST_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    failfast_timeout: _duration_pb2.Duration
    def __init__(self, capacity: _Optional[int] = ..., failfast_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ...) -> None: ...

class FailureAccrual(_message.Message):
    __slots__ = ("consecutive_failures",)
    class ConsecutiveFailures(_message.Message):
        __slots__ = ("max_failures", "backoff")
        MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
        BACKOFF_FIELD_NUMBER: _ClassVar[int]
        max_failures: int
        backoff: ExponentialBackoff
        def __init__(self, max_failures: _Optional[int] = ..., backoff: _Optional[_Union[ExponentialBackoff, _Mapping[str, object]]] = ...) -> None: ...
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    consecutive_failures: FailureAccrual.ConsecutiveFailures
    def __init__(self, consecutive_failures: _Optional[_Union[FailureAccrual.ConsecutiveFailures, _Mapping[str, object]]] = ...) -> None: ...

class ExponentialBackoff(_message.Message):
    __slots__ = ("min_backoff", "max_backoff", "jitter_ratio")
    MIN_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    JITTER_RATIO_FIELD_NUMBER: _ClassVar[int]
    min_backoff: _duration_pb2.Duration
    max_backoff: _duration_pb2.Duration
    jitter_ratio: float
    def __init__(self, min_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., max_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., jitter_ratio: _Optional[float] = ...) -> None: ...

import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[ConfigStatus]
    SYNCED: _ClassVar[ConfigStatus]
    NOT_SENT: _ClassVar[ConfigStatus]
    STALE: _ClassVar[ConfigStatus]
    ERROR: _ClassVar[ConfigStatus]

class ClientConfigStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLIENT_UNKNOWN: _ClassVar[ClientConfigStatus]
    CLIENT_REQUESTED: _ClassVar[ClientConfigStatus]
    CLIENT_ACKED: _ClassVar[ClientConfigStatus]
    CLIENT_NACKED: _ClassVar[ClientConfigStatus]
    CLIENT_RECEIVED_ERROR: _ClassVar[ClientConfigStatus]
UNKNOWN: ConfigStatus
SYNCED: ConfigStatus
NOT_SENT: ConfigStatus
STALE: ConfigStatus
ERROR: ConfigStatus
CLIENT_UNKNOWN: ClientConfigStatus
CLIENT_REQUESTED: ClientConfigStatus
CLIENT_ACKED: ClientConfigStatus
CLIENT_NACKED: ClientConfigStatus
CLIENT_RECEIVED_ERROR: ClientConfigStatus

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping[str, object]]]] = ...) -> None: ...

class DiscoveryRequest(_message.Message):
    __slots__ = ("version_info", "node", "resource_names", "type_url", "response_nonce", "error_detail", "resource_locators")
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAMES_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_NONCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_DETAIL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LOCATORS_FIELD_NUMBER: _ClassVar[int]
    version_info: str
    node: bytes
    resource_names: _containers.RepeatedScalarFieldContainer[str]
    type_url: str
    response_nonce: str
    error_detail: Status
    resource_locators: _containers.RepeatedCompositeFieldContainer[ResourceLocator]
    def __init__(self, version_info: _Optional[str] = ..., node: _Optional[bytes] = ..., resource_names: _Optional[_Iterable[str]] = ..., type_url: _Optional[str] = ..., response_nonce: _Optional[str] = ..., error_detail: _Optional[_Union[Status, _Mapping[str, object]]] = ..., resource_locators: _Optional[_Iterable[_Union[ResourceLocator, _Mapping[str, object]]]] = ...) -> None: ...

class DiscoveryResponse(_message.Message):
    __slots__ = ("version_info", "resources", "canary", "type_url", "nonce", "control_plane", "resource_errors")
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PLANE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ERRORS_FIELD_NUMBER: _ClassVar[int]
    version_info: str
    resources: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    canary: bool
    type_url: str
    nonce: str
    control_plane: ControlPlane
    resource_errors: _containers.RepeatedCompositeFieldContainer[ResourceError]
    def __init__(self, version_info: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping[str, object]]]] = ..., canary: _Optional[bool] = ..., type_url: _Optional[str] = ..., nonce: _Optional[str] = ..., control_plane: _Optional[_Union[ControlPlane, _Mapping[str, object]]] = ..., resource_errors: _Optional[_Iterable[_Union[ResourceError, _Mapping[str, object]]]] = ...) -> None: ...

class DeltaDiscoveryRequest(_message.Message):
    __slots__ = ("node", "type_url", "resource_names_subscribe", "resource_names_unsubscribe", "initial_resource_versions", "response_nonce", "error_detail", "resource_locators_subscribe", "resource_locators_unsubscribe")
    class InitialResourceVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAMES_SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAMES_UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_RESOURCE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_NONCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_DETAIL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LOCATORS_SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LOCATORS_UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    node: bytes
    type_url: str
    resource_names_subscribe: _containers.RepeatedScalarFieldContainer[str]
    resource_names_unsubscribe: _containers.RepeatedScalarFieldContainer[str]
    initial_resource_versions: _containers.ScalarMap[str, str]
    response_nonce: str
    error_detail: Status
    resource_locators_subscribe: _containers.RepeatedCompositeFieldContainer[ResourceLocator]
    resource_locators_unsubscribe: _containers.RepeatedCompositeFieldContainer[ResourceLocator]
    def __init__(self, node: _Optional[bytes] = ..., type_url: _Optional[str] = ..., resource_names_subscribe: _Optional[_Iterable[str]] = ..., resource_names_unsubscribe: _Optional[_Iterable[str]] = ..., initial_resource_versions: _Optional[_Mapping[str, str]] = ..., response_nonce: _Optional[str] = ..., error_detail: _Optional[_Union[Status, _Mapping[str, object]]] = ..., resource_locators_subscribe: _Optional[_Iterable[_Union[ResourceLocator, _Mapping[str, object]]]] = ..., resource_locators_unsubscribe: _Optional[_Iterable[_Union[ResourceLocator, _Mapping[str, object]]]] = ...) -> None: ...

class DeltaDiscoveryResponse(_message.Message):
    __slots__ = ("system_version_info", "resources", "type_url", "nonce", "removed_resources", "control_plane", "removed_resource_names", "resource_errors")
    SYSTEM_VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PLANE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_RESOURCE_NAMES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ERRORS_FIELD_NUMBER: _ClassVar[int]
    system_version_info: str
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    type_url: str
    nonce: str
    removed_resources: _containers.RepeatedScalarFieldContainer[str]
    control_plane: ControlPlane
    removed_resource_names: _containers.RepeatedCompositeFieldContainer[ResourceName]
    resource_errors: _containers.RepeatedCompositeFieldContainer[ResourceError]
    def __init__(self, system_version_info: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping[str, object]]]] = ..., type_url: _Optional[str] = ..., nonce: _Optional[str] = ..., removed_resources: _Optional[_Iterable[str]] = ..., control_plane: _Optional[_Union[ControlPlane, _Mapping[str, object]]] = ..., removed_resource_names: _Optional[_Iterable[_Union[ResourceName, _Mapping[str, object]]]] = ..., resource_errors: _Optional[_Iterable[_Union[ResourceError, _Mapping[str, object]]]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("version", "resource", "name", "aliases", "ttl", "cache_control", "resource_name", "metadata")
    class CacheControl(_message.Message):
        __slots__ = ("do_not_cache",)
        DO_NOT_CACHE_FIELD_NUMBER: _ClassVar[int]
        do_not_cache: bool
        def __init__(self, do_not_cache: _Optional[bool] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    CACHE_CONTROL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    version: str
    resource: _any_pb2.Any
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    ttl: _duration_pb2.Duration
    cache_control: Resource.CacheControl
    resource_name: ResourceName
    metadata: bytes
    def __init__(self, version: _Optional[str] = ..., resource: _Optional[_Union[_any_pb2.Any, _Mapping[str, object]]] = ..., name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., cache_control: _Optional[_Union[Resource.CacheControl, _Mapping[str, object]]] = ..., resource_name: _Optional[_Union[ResourceName, _Mapping[str, object]]] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class ResourceLocator(_message.Message):
    __slots__ = ("name", "dynamic_parameters")
    class DynamicParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dynamic_parameters: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., dynamic_parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ResourceName(_message.Message):
    __slots__ = ("name", "dynamic_parameter_constraints")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_PARAMETER_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dynamic_parameter_constraints: bytes
    def __init__(self, name: _Optional[str] = ..., dynamic_parameter_constraints: _Optional[bytes] = ...) -> None: ...

class ResourceError(_message.Message):
    __slots__ = ("resource_name", "error_detail")
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_DETAIL_FIELD_NUMBER: _ClassVar[int]
    resource_name: ResourceName
    error_detail: Status
    def __init__(self, resource_name: _Optional[_Union[ResourceName, _Mapping[str, object]]] = ..., error_detail: _Optional[_Union[Status, _Mapping[str, object]]] = ...) -> None: ...

class ControlPlane(_message.Message):
    __slots__ = ("identifier",)
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    identifier: str
    def __init__(self, identifier: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "cluster", "metadata", "locality", "build_version", "user_agent_name", "user_agent_version", "user_agent_build_version", "client_features")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LOCALITY_FIELD_NUMBER: _ClassVar[int]
    BUILD_VERSION_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_BUILD_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FEATURES_FIELD_NUMBER: _ClassVar[int]
    id: str
    cluster: str
    metadata: _struct_pb2.Struct
    locality: Locality
    build_version: str
    user_agent_name: str
    user_agent_version: str
    user_agent_build_version: BuildVersion
    client_features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., cluster: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping[str, object]]] = ..., locality: _Optional[_Union[Locality, _Mapping[str, object]]] = ..., build_version: _Optional[str] = ..., user_agent_name: _Optional[str] = ..., user_agent_version: _Optional[str] = ..., user_agent_build_version: _Optional[_Union[BuildVersion, _Mapping[str, object]]] = ..., client_features: _Optional[_Iterable[str]] = ...) -> None: ...

class BuildVersion(_message.Message):
    __slots__ = ("version", "metadata")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    version: SemanticVersion
    metadata: _struct_pb2.Struct
    def __init__(self, version: _Optional[_Union[SemanticVersion, _Mapping[str, object]]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping[str, object]]] = ...) -> None: ...

class SemanticVersion(_message.Message):
    __slots__ = ("major_number", "minor_number", "patch")
    MAJOR_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MINOR_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    major_number: int
    minor_number: int
    patch: int
    def __init__(self, major_number: _Optional[int] = ..., minor_number: _Optional[int] = ..., patch: _Optional[int] = ...) -> None: ...

class Locality(_message.Message):
    __slots__ = ("region", "zone", "sub_zone")
    REGION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    SUB_ZONE_FIELD_NUMBER: _ClassVar[int]
    region: str
    zone: str
    sub_zone: str
    def __init__(self, region: _Optional[str] = ..., zone: _Optional[str] = ..., sub_zone: _Optional[str] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("socket_address", "pipe")
    SOCKET_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PIPE_FIELD_NUMBER: _ClassVar[int]
    socket_address: SocketAddress
    pipe: Pipe
    def __init__(self, socket_address: _Optional[_Union[SocketAddress, _Mapping[str, object]]] = ..., pipe: _Optional[_Union[Pipe, _Mapping[str, object]]] = ...) -> None: ...

class SocketAddress(_message.Message):
    __slots__ = ("address", "port_value", "named_port")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_VALUE_FIELD_NUMBER: _ClassVar[int]
    NAMED_PORT_FIELD_NUMBER: _ClassVar[int]
    address: str
    port_value: int
    named_port: str
    def __init__(self, address: _Optional[str] = ..., port_value: _Optional[int] = ..., named_port: _Optional[str] = ...) -> None: ...

class Pipe(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class LoadStatsRequest(_message.Message):
    __slots__ = ("node", "cluster_stats")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_STATS_FIELD_NUMBER: _ClassVar[int]
    node: bytes
    cluster_stats: _containers.RepeatedCompositeFieldContainer[ClusterStats]
    def __init__(self, node: _Optional[bytes] = ..., cluster_stats: _Optional[_Iterable[_Union[ClusterStats, _Mapping[str, object]]]] = ...) -> None: ...

class LoadStatsResponse(_message.Message):
    __slots__ = ("clusters", "load_reporting_interval", "report_endpoint_granularity", "send_all_clusters")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    LOAD_REPORTING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    REPORT_ENDPOINT_GRANULARITY_FIELD_NUMBER: _ClassVar[int]
    SEND_ALL_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    load_reporting_interval: _duration_pb2.Duration
    report_endpoint_granularity: bool
    send_all_clusters: bool
    def __init__(self, clusters: _Optional[_Iterable[str]] = ..., load_reporting_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., report_endpoint_granularity: _Optional[bool] = ..., send_all_clusters: _Optional[bool] = ...) -> None: ...

class ClusterStats(_message.Message):
    __slots__ = ("cluster_name", "upstream_locality_stats", "total_dropped_requests", "load_report_interval", "dropped_requests", "cluster_service_name")
    class DroppedRequests(_message.Message):
        __slots__ = ("category", "dropped_count")
        CATEGORY_FIELD_NUMBER: _ClassVar[int]
        DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
        category: str
        dropped_count: int
        def __init__(self, category: _Optional[str] = ..., dropped_count: _Optional[int] = ...) -> None: ...
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_LOCALITY_STATS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DROPPED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_REPORT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    upstream_locality_stats: _containers.RepeatedCompositeFieldContainer[UpstreamLocalityStats]
    total_dropped_requests: int
    load_report_interval: _duration_pb2.Duration
    dropped_requests: _containers.RepeatedCompositeFieldContainer[ClusterStats.DroppedRequests]
    cluster_service_name: str
    def __init__(self, cluster_name: _Optional[str] = ..., upstream_locality_stats: _Optional[_Iterable[_Union[UpstreamLocalityStats, _Mapping[str, object]]]] = ..., total_dropped_requests: _Optional[int] = ..., load_report_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping[str, object]]] = ..., dropped_requests: _Optional[_Iterable[_Union[ClusterStats.DroppedRequests, _Mapping[str, object]]]] = ..., cluster_service_name: _Optional[str] = ...) -> None: ...

class UpstreamLocalityStats(_message.Message):
    __slots__ = ("locality", "total_successful_requests", "total_requests_in_progress", "total_error_requests", "load_metric_stats", "priority", "upstream_endpoint_stats", "total_issued_requests", "total_active_connections", "total_new_connections", "total_fail_connections", "cpu_utilization", "mem_utilization", "application_utilization")
    LOCALITY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SUCCESSFUL_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REQUESTS_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ERROR_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_METRIC_STATS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_ENDPOINT_STATS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ISSUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ACTIVE_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NEW_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FAIL_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEM_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    locality: Locality
    total_successful_requests: int
    total_requests_in_progress: int
    total_error_requests: int
    load_metric_stats: _containers.RepeatedCompositeFieldContainer[EndpointLoadMetricStats]
    priority: int
    upstream_endpoint_stats: _containers.RepeatedCompositeFieldContainer[UpstreamEndpointStats]
    total_issued_requests: int
    total_active_connections: int
    total_new_connections: int
    total_fail_connections: int
    cpu_utilization: UnnamedEndpointLoadMetricStats
    mem_utilization: UnnamedEndpointLoadMetricStats
    application_utilization: UnnamedEndpointLoadMetricStats
    def __init__(self, locality: _Optional[_Union[Locality, _Mapping[str, object]]] = ..., total_successful_requests: _Optional[int] = ..., total_requests_in_progress: _Optional[int] = ..., total_error_requests: _Optional[int] = ..., load_metric_stats: _Optional[_Iterable[_Union[EndpointLoadMetricStats, _Mapping[str, object]]]] = ..., priority: _Optional[int] = ..., upstream_endpoint_stats: _Optional[_Iterable[_Union[UpstreamEndpointStats, _Mapping[str, object]]]] = ..., total_issued_requests: _Optional[int] = ..., total_active_connections: _Optional[int] = ..., total_new_connections: _Optional[int] = ..., total_fail_connections: _Optional[int] = ..., cpu_utilization: _Optional[_Union[UnnamedEndpointLoadMetricStats, _Mapping[str, object]]] = ..., mem_utilization: _Optional[_Union[UnnamedEndpointLoadMetricStats, _Mapping[str, object]]] = ..., application_utilization: _Optional[_Union[UnnamedEndpointLoadMetricStats, _Mapping[str, object]]] = ...) -> None: ...

class UpstreamEndpointStats(_message.Message):
    __slots__ = ("address", "total_successful_requests", "total_requests_in_progress", "total_error_requests", "load_metric_stats", "metadata", "total_issued_requests")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SUCCESSFUL_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REQUESTS_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ERROR_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_METRIC_STATS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ISSUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    address: Address
    total_successful_requests: int
    total_requests_in_progress: int
    total_error_requests: int
    load_metric_stats: _containers.RepeatedCompositeFieldContainer[EndpointLoadMetricStats]
    metadata: _struct_pb2.Struct
    total_issued_requests: int
    def __init__(self, address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., total_successful_requests: _Optional[int] = ..., total_requests_in_progress: _Optional[int] = ..., total_error_requests: _Optional[int] = ..., load_metric_stats: _Optional[_Iterable[_Union[EndpointLoadMetricStats, _Mapping[str, object]]]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping[str, object]]] = ..., total_issued_requests: _Optional[int] = ...) -> None: ...

class EndpointLoadMetricStats(_message.Message):
    __slots__ = ("metric_name", "num_requests_finished_with_metric", "total_metric_value")
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FINISHED_WITH_METRIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_METRIC_VALUE_FIELD_NUMBER: _ClassVar[int]
    metric_name: str
    num_requests_finished_with_metric: int
    total_metric_value: float
    def __init__(self, metric_name: _Optional[str] = ..., num_requests_finished_with_metric: _Optional[int] = ..., total_metric_value: _Optional[float] = ...) -> None: ...

class UnnamedEndpointLoadMetricStats(_message.Message):
    __slots__ = ("num_requests_finished_with_metric", "total_metric_value")
    NUM_REQUESTS_FINISHED_WITH_METRIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_METRIC_VALUE_FIELD_NUMBER: _ClassVar[int]
    num_requests_finished_with_metric: int
    total_metric_value: float
    def __init__(self, num_requests_finished_with_metric: _Optional[int] = ..., total_metric_value: _Optional[float] = ...) -> None: ...

class LoadTally(_message.Message):
    __slots__ = ("node", "cluster_stats")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_STATS_FIELD_NUMBER: _ClassVar[int]
    node: bytes
    cluster_stats: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, node: _Optional[bytes] = ..., cluster_stats: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ClusterTally(_message.Message):
    __slots__ = ("cluster_name", "upstream_locality_stats", "total_dropped_requests", "load_report_interval", "dropped_requests", "cluster_service_name")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_LOCALITY_STATS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DROPPED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_REPORT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_name: bytes
    upstream_locality_stats: _containers.RepeatedScalarFieldContainer[bytes]
    total_dropped_requests: int
    load_report_interval: bytes
    dropped_requests: bytes
    cluster_service_name: bytes
    def __init__(self, cluster_name: _Optional[bytes] = ..., upstream_locality_stats: _Optional[_Iterable[bytes]] = ..., total_dropped_requests: _Optional[int] = ..., load_report_interval: _Optional[bytes] = ..., dropped_requests: _Optional[bytes] = ..., cluster_service_name: _Optional[bytes] = ...) -> None: ...

class LocalityTally(_message.Message):
    __slots__ = ("locality", "total_successful_requests", "total_requests_in_progress", "total_error_requests", "priority", "total_issued_requests", "load_metric_stats", "upstream_endpoint_stats", "cpu_utilization", "mem_utilization", "application_utilization")
    LOCALITY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SUCCESSFUL_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REQUESTS_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ERROR_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ISSUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_METRIC_STATS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_ENDPOINT_STATS_FIELD_NUMBER: _ClassVar[int]
    CPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEM_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    locality: bytes
    total_successful_requests: int
    total_requests_in_progress: int
    total_error_requests: int
    priority: int
    total_issued_requests: int
    load_metric_stats: bytes
    upstream_endpoint_stats: bytes
    cpu_utilization: bytes
    mem_utilization: bytes
    application_utilization: bytes
    def __init__(self, locality: _Optional[bytes] = ..., total_successful_requests: _Optional[int] = ..., total_requests_in_progress: _Optional[int] = ..., total_error_requests: _Optional[int] = ..., priority: _Optional[int] = ..., total_issued_requests: _Optional[int] = ..., load_metric_stats: _Optional[bytes] = ..., upstream_endpoint_stats: _Optional[bytes] = ..., cpu_utilization: _Optional[bytes] = ..., mem_utilization: _Optional[bytes] = ..., application_utilization: _Optional[bytes] = ...) -> None: ...

class ClientResourceStatus(_message.Message):
    __slots__ = ()
    class Value(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[ClientResourceStatus.Value]
        REQUESTED: _ClassVar[ClientResourceStatus.Value]
        DOES_NOT_EXIST: _ClassVar[ClientResourceStatus.Value]
        ACKED: _ClassVar[ClientResourceStatus.Value]
        NACKED: _ClassVar[ClientResourceStatus.Value]
        RECEIVED_ERROR: _ClassVar[ClientResourceStatus.Value]
        TIMEOUT: _ClassVar[ClientResourceStatus.Value]
    UNKNOWN: ClientResourceStatus.Value
    REQUESTED: ClientResourceStatus.Value
    DOES_NOT_EXIST: ClientResourceStatus.Value
    ACKED: ClientResourceStatus.Value
    NACKED: ClientResourceStatus.Value
    RECEIVED_ERROR: ClientResourceStatus.Value
    TIMEOUT: ClientResourceStatus.Value
    def __init__(self) -> None: ...

class ClientStatusRequest(_message.Message):
    __slots__ = ("node_matchers", "node", "exclude_resource_contents")
    NODE_MATCHERS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_RESOURCE_CONTENTS_FIELD_NUMBER: _ClassVar[int]
    node_matchers: _containers.RepeatedScalarFieldContainer[bytes]
    node: bytes
    exclude_resource_contents: bool
    def __init__(self, node_matchers: _Optional[_Iterable[bytes]] = ..., node: _Optional[bytes] = ..., exclude_resource_contents: _Optional[bool] = ...) -> None: ...

class ClientStatusResponse(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: _containers.RepeatedCompositeFieldContainer[ClientConfig]
    def __init__(self, config: _Optional[_Iterable[_Union[ClientConfig, _Mapping[str, object]]]] = ...) -> None: ...

class ClientConfig(_message.Message):
    __slots__ = ("node", "xds_config", "generic_xds_configs", "client_scope")
    class GenericXdsConfig(_message.Message):
        __slots__ = ("type_url", "name", "version_info", "xds_config", "last_updated", "config_status", "client_status", "error_state", "is_static_resource")
        TYPE_URL_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
        XDS_CONFIG_FIELD_NUMBER: _ClassVar[int]
        LAST_UPDATED_FIELD_NUMBER: _ClassVar[int]
        CONFIG_STATUS_FIELD_NUMBER: _ClassVar[int]
        CLIENT_STATUS_FIELD_NUMBER: _ClassVar[int]
        ERROR_STATE_FIELD_NUMBER: _ClassVar[int]
        IS_STATIC_RESOURCE_FIELD_NUMBER: _ClassVar[int]
        type_url: str
        name: str
        version_info: str
        xds_config: _any_pb2.Any
        last_updated: _timestamp_pb2.Timestamp
        config_status: ConfigStatus
        client_status: ClientResourceStatus.Value
        error_state: UpdateFailureState
        is_static_resource: bool
        def __init__(self, type_url: _Optional[str] = ..., name: _Optional[str] = ..., version_info: _Optional[str] = ..., xds_config: _Optional[_Union[_any_pb2.Any, _Mapping[str, object]]] = ..., last_updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, object]]] = ..., config_status: _Optional[_Union[ConfigStatus, str]] = ..., client_status: _Optional[_Union[ClientResourceStatus.Value, str]] = ..., error_state: _Optional[_Union[UpdateFailureState, _Mapping[str, object]]] = ..., is_static_resource: _Optional[bool] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    XDS_CONFIG_FIELD_NUMBER: _ClassVar[int]
    GENERIC_XDS_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SCOPE_FIELD_NUMBER: _ClassVar[int]
    node: bytes
    xds_config: _containers.RepeatedCompositeFieldContainer[PerXdsConfig]
    generic_xds_configs: _containers.RepeatedCompositeFieldContainer[ClientConfig.GenericXdsConfig]
    client_scope: str
    def __init__(self, node: _Optional[bytes] = ..., xds_config: _Optional[_Iterable[_Union[PerXdsConfig, _Mapping[str, object]]]] = ..., generic_xds_configs: _Optional[_Iterable[_Union[ClientConfig.GenericXdsConfig, _Mapping[str, object]]]] = ..., client_scope: _Optional[str] = ...) -> None: ...

class PerXdsConfig(_message.Message):
    __slots__ = ("status", "listener_config", "cluster_config", "route_config", "scoped_route_config", "endpoint_config", "client_status")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ROUTE_CONFIG_FIELD_NUMBER: _ClassVar[int]
    SCOPED_ROUTE_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    CLIENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    status: ConfigStatus
    listener_config: bytes
    cluster_config: bytes
    route_config: bytes
    scoped_route_config: bytes
    endpoint_config: bytes
    client_status: ClientConfigStatus
    def __init__(self, status: _Optional[_Union[ConfigStatus, str]] = ..., listener_config: _Optional[bytes] = ..., cluster_config: _Optional[bytes] = ..., route_config: _Optional[bytes] = ..., scoped_route_config: _Optional[bytes] = ..., endpoint_config: _Optional[bytes] = ..., client_status: _Optional[_Union[ClientConfigStatus, str]] = ...) -> None: ...

class UpdateFailureState(_message.Message):
    __slots__ = ("failed_configuration", "last_update_attempt", "details", "version_info")
    FAILED_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    failed_configuration: _any_pb2.Any
    last_update_attempt: _timestamp_pb2.Timestamp
    details: str
    version_info: str
    def __init__(self, failed_configuration: _Optional[_Union[_any_pb2.Any, _Mapping[str, object]]] = ..., last_update_attempt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, object]]] = ..., details: _Optional[str] = ..., version_info: _Optional[str] = ...) -> None: ...

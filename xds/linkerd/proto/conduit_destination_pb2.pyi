from xds.linkerd.proto import conduit_common_pb2 as _conduit_common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Update(_message.Message):
    __slots__ = ("add", "remove", "no_endpoints")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    NO_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    add: WeightedAddrSet
    remove: AddrSet
    no_endpoints: NoEndpoints
    def __init__(self, add: _Optional[_Union[WeightedAddrSet, _Mapping[str, object]]] = ..., remove: _Optional[_Union[AddrSet, _Mapping[str, object]]] = ..., no_endpoints: _Optional[_Union[NoEndpoints, _Mapping[str, object]]] = ...) -> None: ...

class AddrSet(_message.Message):
    __slots__ = ("addrs",)
    ADDRS_FIELD_NUMBER: _ClassVar[int]
    addrs: _containers.RepeatedCompositeFieldContainer[_conduit_common_pb2.TcpAddress]
    def __init__(self, addrs: _Optional[_Iterable[_Union[_conduit_common_pb2.TcpAddress, _Mapping[str, object]]]] = ...) -> None: ...

class WeightedAddrSet(_message.Message):
    __slots__ = ("addrs", "metric_labels")
    class MetricLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRS_FIELD_NUMBER: _ClassVar[int]
    METRIC_LABELS_FIELD_NUMBER: _ClassVar[int]
    addrs: _containers.RepeatedCompositeFieldContainer[WeightedAddr]
    metric_labels: _containers.ScalarMap[str, str]
    def __init__(self, addrs: _Optional[_Iterable[_Union[WeightedAddr, _Mapping[str, object]]]] = ..., metric_labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WeightedAddr(_message.Message):
    __slots__ = ("addr", "weight", "metric_labels")
    class MetricLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    METRIC_LABELS_FIELD_NUMBER: _ClassVar[int]
    addr: _conduit_common_pb2.TcpAddress
    weight: int
    metric_labels: _containers.ScalarMap[str, str]
    def __init__(self, addr: _Optional[_Union[_conduit_common_pb2.TcpAddress, _Mapping[str, object]]] = ..., weight: _Optional[int] = ..., metric_labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NoEndpoints(_message.Message):
    __slots__ = ("exists",)
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    def __init__(self, exists: _Optional[bool] = ...) -> None: ...

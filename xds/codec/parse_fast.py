"""Plain values to messages without paths, findings or leniency: tried before `parse`, which explains what fails here.

It is kept for large pushes: a push of 10,000 JSON resources takes 470 ms with it and 670 ms without, and one that
changes half of them 360 ms and 550 ms (``bench.pushes``, medians of three). Pushed input is nearly always correct
proto3 JSON. The parser of a type is compiled on first use, one function per field name. Anything that it does not
expect (an error, a lenient form, a null, deep nesting) makes it give up, and `MessageParser` parses the value again
and reports. So this parser may refuse a correct value; it must never accept one that `MessageParser` has a finding
about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from xds.codec import schema
from xds.codec.naming import TYPE_KEY, VALUE_KEY
from xds.codec.scalar import ScalarError, number, strict_converter

# Messages within each other; a fraction of what `MessageParser` allows, where a path has up to two steps for each.
DEPTH_LIMIT = 40

_DURATION = re.compile(r"([0-9]{1,9})s")
_FRACTION = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?s")

_Read = Callable[[Any, Any, int], None]  # fills the message that is given from a value, at a depth
_Readers = Mapping[str, _Read]


class UnusualInputError(Exception):
    """The value needs the full parser."""


_UNUSUAL_INPUT_ERRORS = (
    *(UnusualInputError, ScalarError, DecodeError, EncodeError),
    *(AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError),
)


def parse_fast(message: Any, value: object) -> bool:
    """Fill an empty ``message`` of a resource. False: the full parser is needed, and the message is half filled."""
    if message.DESCRIPTOR.full_name in _SPECIAL:
        return False
    try:
        _payload_reader(message.DESCRIPTOR)(message, value, 1)
    except _UNUSUAL_INPUT_ERRORS:
        return False
    return True


@cache
def _reader(descriptor: Descriptor) -> _Read:
    """The parser that fills a message of a type from its JSON form."""
    special = _SPECIAL.get(descriptor.full_name)
    return special(descriptor) if special is not None else _object_reader(descriptor, {})


@cache
def _payload_reader(descriptor: Descriptor) -> _Read:
    """As ``_reader``, for a message whose JSON form holds ``@type`` beside its fields."""
    return _object_reader(descriptor, {TYPE_KEY: lambda message, value, depth: None})


def _object_reader(descriptor: Descriptor, readers: dict[str, _Read]) -> _Read:
    by_json_name: dict[str, FieldDescriptor] = {}

    def compile_fields() -> None:  # on first use: types refer to themselves
        readers.update({field.name: _field_reader(field) for field in descriptor.fields})
        by_json_name.update({field.json_name: field for field in descriptor.fields})

    def by_other_spelling(key: str, value: Mapping[str, Any]) -> _Read:
        if not by_json_name:
            compile_fields()
        name = by_json_name[key].name if key not in readers else key
        if name != key and name in value:
            raise UnusualInputError  # given in both spellings
        return readers[name]

    def read(message: Any, value: Any, depth: int) -> None:
        if type(value) is not dict or depth > DEPTH_LIMIT:
            raise UnusualInputError
        for key, item in value.items():
            if item is None:
                raise UnusualInputError
            (readers.get(key) or by_other_spelling(key, value))(message, item, depth)

    return read


def _field_reader(field: FieldDescriptor) -> _Read:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map_reader(field)
    if field.is_repeated:
        return _list_reader(field)
    set_field = _scalar_reader(field) if field.message_type is None else _message_reader(field)
    oneof = field.containing_oneof
    return set_field if oneof is None or len(oneof.fields) == 1 else _member_reader(oneof.name, set_field)


def _scalar_reader(field: FieldDescriptor) -> _Read:
    name, convert = field.name, strict_converter(field)

    def read(message: Any, value: Any, depth: int) -> None:
        setattr(message, name, convert(value))

    return read


def _message_reader(field: FieldDescriptor) -> _Read:
    assert field.message_type is not None
    name, read_message = field.name, _reader(field.message_type) if _is_special(field) else None
    descriptor = field.message_type

    def read(message: Any, value: Any, depth: int) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        (read_message or _reader(descriptor))(inner, value, depth + 1)

    return read


def _is_special(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name in _SPECIAL


def _member_reader(oneof: str, set_field: _Read) -> _Read:
    def read(message: Any, value: Any, depth: int) -> None:
        if message.WhichOneof(oneof) is not None:
            raise UnusualInputError
        set_field(message, value, depth)

    return read


def _list_reader(field: FieldDescriptor) -> _Read:
    name, descriptor = field.name, field.message_type
    if descriptor is None:
        convert = strict_converter(field)

        def read(message: Any, value: Any, depth: int) -> None:
            if type(value) is not list:
                raise UnusualInputError
            getattr(message, name).extend([convert(item) for item in value])

        return read

    def read_messages(message: Any, value: Any, depth: int) -> None:
        if type(value) is not list:
            raise UnusualInputError
        add, read_item = getattr(message, name).add, _reader(descriptor)
        for item in value:
            read_item(add(), item, depth + 1)

    return read_messages


def _map_reader(field: FieldDescriptor) -> _Read:
    """Maps with string keys. Other keys have several spellings in JSON, and two of them may be one key."""
    assert field.message_type is not None
    name, entry = field.name, field.message_type.fields_by_name
    if entry["key"].type != FieldDescriptor.TYPE_STRING:
        return _give_up
    descriptor = entry["value"].message_type
    convert = None if descriptor is not None else strict_converter(entry["value"])

    def read(message: Any, value: Any, depth: int) -> None:
        if type(value) is not dict:
            raise UnusualInputError
        entries = getattr(message, name)
        for key, item in value.items():
            if convert is not None:
                entries[key] = convert(item)
            else:
                assert descriptor is not None
                _reader(descriptor)(entries[key], item, depth + 2)  # an entry is a message too

    return read


def _give_up(message: Any, value: Any, depth: int) -> None:
    raise UnusualInputError


def _any(message: Any, value: Any, depth: int) -> None:
    if not value and type(value) is dict:
        return
    type_url = value[TYPE_KEY]
    host, _, name = type_url.rpartition("/")
    descriptor = schema.descriptor(type_url)
    if not host or not name or VALUE_KEY in value or descriptor is None or descriptor.full_name in _SPECIAL:
        raise UnusualInputError
    payload_class = message_factory.GetMessageClass(descriptor)
    inner = payload_class()
    _payload_reader(descriptor)(inner, value, depth + 1)
    message.type_url = type_url
    message.value = body = inner.SerializeToString(deterministic=True)
    payload_class.FromString(body)  # too deep for a parser


def _duration(message: Any, value: Any, depth: int) -> None:
    whole = _DURATION.fullmatch(value)
    if whole is not None:
        message.seconds = int(whole[1])
    elif _FRACTION.fullmatch(value):
        message.FromJsonString(value)
    else:
        raise UnusualInputError


def _text_form(message: Any, value: Any, depth: int) -> None:
    if type(value) is not str:
        raise UnusualInputError
    message.FromJsonString(value)


def _struct(message: Any, value: Any, depth: int) -> None:
    if type(value) is not dict or depth > DEPTH_LIMIT:
        raise UnusualInputError
    fields = message.fields
    for key, item in value.items():
        _free_form(fields[key], item, depth + 2)


def _list_value(message: Any, value: Any, depth: int) -> None:
    if type(value) is not list or depth > DEPTH_LIMIT:
        raise UnusualInputError
    add = message.values.add
    for item in value:
        _free_form(add(), item, depth + 1)


def _free_form(message: Any, value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        message.string_value = value
    elif kind is bool:
        message.bool_value = value
    elif kind is dict:
        message.struct_value.SetInParent()
        _struct(message.struct_value, value, depth + 1)
    elif kind is list:
        message.list_value.SetInParent()
        _list_value(message.list_value, value, depth + 1)
    elif value is None:
        message.null_value = 0
    else:
        message.number_value = number(value)


_SPECIAL: Mapping[str, Callable[[Descriptor], _Read]] = {
    "google.protobuf.Any": lambda _: _any,
    "google.protobuf.Duration": lambda _: _duration,
    "google.protobuf.FieldMask": lambda _: _text_form,
    "google.protobuf.Timestamp": lambda _: _text_form,
    "google.protobuf.ListValue": lambda _: _list_value,
    "google.protobuf.Struct": lambda _: _struct,
    "google.protobuf.Value": lambda _: _free_form,
    **{
        f"google.protobuf.{name}Value": lambda descriptor: _scalar_reader(descriptor.fields_by_name["value"])
        for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
    },
}

"""Whether a message surely keeps all rules, judged by its canonical bytes.

What is pushed is nearly always right, and much of it was seen before: the address of an endpoint stays when its weight
changes. So bytes are read field by field, and a submessage that was found right is known by its bytes. Whatever cannot
be judged so, or is wrong, is left to ``constraints.check_constraints``, which says what there is to say: this may doubt
what is fine, and must never pass what is spoken of there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from xds.codec.constraints import presence_rules, value_check
from xds.codec.rules import compile_rules
from xds.codec.walk import ANY, reachable
from xds.proto import options
from xds.proto.options import Rules

# What is remembered: an endpoint with its weight takes 30 bytes, one more 150 of memory.
KNOWN_LIMIT = 40_000
KNOWN_BYTES_LIMIT = 96

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_MORE = 0x80
_VARINT_LIMIT = 70  # bits

_Judge = Callable[[Any], bool]  # of a number as it stands on the wire, or of the bytes of what has a size


def is_sound(descriptor: Any, body: bytes) -> bool:
    """Whether the message of these canonical bytes breaks no rule and uses nothing deprecated; False where in doubt."""
    try:
        return _shape(descriptor).judge(body)
    except (IndexError, UnicodeDecodeError, RecursionError):
        return False


class _Known:
    """Bytes that were found right, by type; all are forgotten when there are too many."""

    def __init__(self) -> None:
        self.count = 0
        self._by_type: list[set[bytes]] = []

    def of_type(self) -> set[bytes]:
        self._by_type.append(set())
        return self._by_type[-1]

    def keep(self, known: set[bytes], body: bytes) -> None:
        if len(body) > KNOWN_BYTES_LIMIT:
            return
        if self.count >= KNOWN_LIMIT:
            for each in self._by_type:
                each.clear()
            self.count = 0
        known.add(body)
        self.count += 1


_known = _Known()


class _Shape:
    """What to look at in the bytes of a type: by tag, the bit of its presence and what judges its value.

    ``needed`` are the bits of what must be there, ``one_of`` those of which one must be.
    """

    __slots__ = ("_descriptor", "_fields", "_needed", "_one_of")

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._fields: Mapping[int, tuple[int, _Judge | None]] | None = None
        self._needed = 0
        self._one_of: tuple[int, ...] = ()

    def judge(self, body: bytes) -> bool:
        """Whether all that stands in ``body`` is right, and all that must is there."""
        fields = self._fields
        if fields is None:
            fields = self._compile()
        seen = at = 0
        end = len(body)
        while at < end:
            tag = body[at]
            at += 1
            if tag >= _MORE:
                tag, at = _varint(body, at - 1)
            bit, judge = fields.get(tag, _UNKNOWN)
            seen |= bit
            form = tag & 7
            if form == _SIZED:
                size = body[at]
                at += 1
                if size >= _MORE:
                    size, at = _varint(body, at - 1)
                start, at = at, at + size
                if judge is not None and not judge(body[start:at]):
                    return False
            elif form == _VARINT:
                value = body[at]
                at += 1
                if value >= _MORE:
                    value, at = _varint(body, at - 1)
                if judge is not None and not judge(value):
                    return False
            elif judge is None and form in (_FIXED32, _FIXED64):
                at += 4 if form == _FIXED32 else 8
            else:
                return False
        if at != end or seen & self._needed != self._needed:
            return False
        return not self._one_of or all(seen & bits for bits in self._one_of)

    def _compile(self) -> Mapping[int, tuple[int, _Judge | None]]:
        """On first use: types refer to themselves."""
        bits = {field.name: 1 << place for place, field in enumerate(self._descriptor.fields)}
        needed, oneofs = presence_rules(self._descriptor)
        # An entry of a map is written with both its parts.
        self._needed = sum(bits[name] for name in (bits if self._descriptor.GetOptions().map_entry else needed))
        self._one_of = tuple(sum(bits[name] for name in members) for members in oneofs)
        found: dict[int, tuple[int, _Judge | None]] = {}
        for field in self._descriptor.fields:
            judge = _judge_of(self._descriptor, field)
            found.update((field.number << 3 | form, (bits[field.name], judge)) for form in _forms(field))
        self._fields = found
        return found


_UNKNOWN: tuple[int, None] = (0, None)


@cache
def _shape(descriptor: Descriptor) -> _Shape:
    return _Shape(descriptor)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while shift < _VARINT_LIMIT:
        octet = body[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < _MORE:
            return value, at
        shift += 7
    raise IndexError("a number without an end")


def _forms(field: FieldDescriptor) -> Iterable[int]:
    """The wire types in which a field may be met; numbers of a list, packed or not."""
    match field.type:
        case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES | FieldDescriptor.TYPE_MESSAGE:
            return (_SIZED,)
        case FieldDescriptor.TYPE_GROUP:
            return (3,)
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FIXED64 | FieldDescriptor.TYPE_SFIXED64:
            own = _FIXED64
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_FIXED32 | FieldDescriptor.TYPE_SFIXED32:
            own = _FIXED32
        case _:
            own = _VARINT
    return (own, _SIZED) if field.is_repeated else (own,)


def _judge_of(descriptor: Descriptor, field: FieldDescriptor) -> _Judge | None:
    """What judges a field's value, or each of its values; None where there is nothing to test."""
    is_closed = field.enum_type is not None and field.enum_type.is_closed  # what it does not name is no value of it
    if is_closed or field.name in options.deprecated_fields(descriptor.full_name):
        return _doubt
    rules = options.rules(descriptor.full_name).get(field.name, {})
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _doubt if rules.get("map") else _judge_of_entries(field.message_type)
    if not field.is_repeated:
        return _judge_of_value(field, rules)
    own = rules.get("repeated", {})
    if compile_rules("repeated", {name: argument for name, argument in own.items() if name != "items"}) is not None:
        return _doubt
    judge = _judge_of_value(field, own.get("items", {}))
    return judge if judge is None or field.message_type is not None else _doubt


def _doubt(value: Any) -> bool:
    return False


def _judge_of_entries(entry: Descriptor) -> _Judge | None:
    checks = [value_check(field, {}) for field in entry.fields]
    return _shape(entry).judge if any(check is not None for check in checks) else None


def _judge_of_value(field: FieldDescriptor, rules: Rules) -> _Judge | None:
    check = value_check(field, rules)
    if check is None:
        return None
    if field.message_type is not None:
        return _judge_of_message(field.message_type, check, has_rules=any(kind != "message" for kind in rules))
    value_of = _VALUES.get(field.type)
    return _doubt if value_of is None else lambda raw: check(value_of(raw)) is None


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


# From what stands on the wire; others are rarely tested.
_VALUES: Mapping[int, Callable[[Any], object]] = {
    FieldDescriptor.TYPE_STRING: bytes.decode,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_UINT32: int,
    FieldDescriptor.TYPE_UINT64: int,
    FieldDescriptor.TYPE_INT32: _signed,
    FieldDescriptor.TYPE_INT64: _signed,
    FieldDescriptor.TYPE_ENUM: _signed,
}


def _judge_of_message(descriptor: Descriptor, check: Callable[[Any], object], *, has_rules: bool) -> _Judge:
    """By its shape, unless the field itself asks something of it or it packs another; else it is read and checked."""
    parse = message_factory.GetMessageClass(descriptor).FromString
    shape = None if has_rules or descriptor.full_name == ANY else _shape(descriptor)
    # What an ``Any`` holds may be of a type that is made known later.
    known = None if ANY in reachable(descriptor) else _known.of_type()

    def judge(body: bytes) -> bool:
        if known is not None and body in known:
            return True
        try:
            if not (shape is not None and shape.judge(body)) and check(parse(body)) is not None:
                return False
        except DecodeError:
            return False
        if known is not None:
            _known.keep(known, body)
        return True

    return judge

"""Whether a message surely keeps all rules, judged by its canonical bytes.

What is pushed is nearly always right, and much of it was seen before: the address of an endpoint stays when its weight
changes. So bytes are read field by field, and a submessage that was found right is known by its bytes. Whatever cannot
be judged so, or is wrong, is left to ``constraints.check_constraints``, which says what there is to say: this may doubt
what is fine, and must never pass what is spoken of there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from xds.codec.constraints import presence_rules, value_check
from xds.codec.rules import compile_rules
from xds.codec.walk import ANY, reachable
from xds.proto import options
from xds.proto.options import Rules
from xds.wire.fields import FIXED32, FIXED64, LENGTH_DELIMITED, VARINT, WireFormatError, decode_varint

# What is remembered: an endpoint with its weight takes 30 bytes, one more 150 of memory.
KNOWN_LIMIT = 40_000
KNOWN_BYTES_LIMIT = 96

_FIXED = {FIXED64: 8, FIXED32: 4}  # bytes
_MORE = 0x80

_Values = set[int | bytes]
# Of a number as it stands on the wire, or of the bytes of what has a size: the truth of what it tells is the verdict.
_Judge = Callable[[Any], object]
# A verdict: right, but not to be remembered, as what an ``Any`` holds may be of a type that is made known later.
_FOR_NOW = object()


def is_sound(descriptor: Any, body: bytes) -> bool:
    """Whether the message of these canonical bytes breaks no rule and uses nothing deprecated; False where in doubt."""
    try:
        return bool(_shape(descriptor).judge(body))
    except (IndexError, UnicodeDecodeError, RecursionError, WireFormatError):
        return False


class _Known:
    """Values that were found right, by field; all are forgotten when there are too many."""

    def __init__(self) -> None:
        self.count = 0
        self._by_field: list[_Values] = []

    def of_field(self) -> _Values:
        self._by_field.append(set())
        return self._by_field[-1]

    def keep(self, known: _Values, value: int | bytes) -> None:
        if self.count >= KNOWN_LIMIT:
            for each in self._by_field:
                each.clear()
            self.count = 0
        known.add(value)
        self.count += 1


_known = _Known()


class _Look(NamedTuple):
    """How to look at a field: the bits of its presence, what judges each of its values, and what was found right.

    ``judge`` is None where there is nothing to test, ``known`` where nothing is remembered. What ``judge`` doubts is
    right if ``check`` says so.
    """

    bits: int
    judge: _Judge | None = None
    known: _Values | None = None
    check: _Judge | None = None


class _Shape:
    """What to look at in the bytes of a type, by tag; ``needed`` are the bits of what must be there."""

    __slots__ = ("_descriptor", "_fields", "_needed")

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._fields: Mapping[int, _Look] | None = None
        self._needed = 0

    def judge(self, body: bytes) -> object:
        """Whether all that stands in ``body`` is right, and all that must is there."""
        fields = self._fields
        if fields is None:
            fields = self._compile()
        verdict: object = True
        seen = at = 0
        end = len(body)
        while at < end:
            # Most varints have one byte: read here, a call for each would double the time.
            tag = body[at]
            at += 1
            if tag >= _MORE:
                tag, at = decode_varint(body, at - 1)
            bits, judge, known, check = fields.get(tag, _UNKNOWN)
            seen |= bits
            form = tag & 7
            start = at
            value: int | bytes
            if form == LENGTH_DELIMITED:
                size = body[at]
                at += 1
                if size >= _MORE:
                    size, at = decode_varint(body, start)
                start, at = at, at + size
                value = body[start:at]
            elif form == VARINT:
                value = body[at]
                at += 1
                if value >= _MORE:
                    value, at = decode_varint(body, start)
            elif judge is None and form in _FIXED:
                at += _FIXED[form]
                continue
            else:
                return False
            if judge is None or (known is not None and value in known):
                continue
            own = judge(value) or (check is not None and check(value))
            if not own:
                return False
            verdict = own if own is _FOR_NOW else verdict
            # What is all there is in ``body`` is known with it.
            if known is not None and own is not _FOR_NOW and at - start <= KNOWN_BYTES_LIMIT and at - start + 2 != end:
                _known.keep(known, value)
        return verdict if at == end and seen & self._needed == self._needed else False

    def _compile(self) -> Mapping[int, _Look]:
        """On first use: types refer to themselves."""
        bits = {field.name: 1 << place for place, field in enumerate(self._descriptor.fields)}
        needed, oneofs = presence_rules(self._descriptor)
        # An entry of a map is written with both its parts.
        self._needed = sum(bits[name] for name in (bits if self._descriptor.GetOptions().map_entry else needed))
        for place, members in enumerate(oneofs, len(bits)):  # a bit that any of them sets
            self._needed |= 1 << place
            bits |= {name: bits[name] | 1 << place for name in members}
        found: dict[int, _Look] = {}
        for field in self._descriptor.fields:
            look = _look_at(self._descriptor, field)._replace(bits=bits[field.name])
            found.update((field.number << 3 | form, look) for form in _forms(field))
        self._fields = found
        return found


_UNKNOWN = _Look(0)


@cache
def _shape(descriptor: Descriptor) -> _Shape:
    return _Shape(descriptor)


def _forms(field: FieldDescriptor) -> Iterable[int]:
    """The wire types in which a field may be met; numbers of a list, packed or not."""
    match field.type:
        case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES | FieldDescriptor.TYPE_MESSAGE:
            return (LENGTH_DELIMITED,)
        case FieldDescriptor.TYPE_GROUP:
            return (3,)
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FIXED64 | FieldDescriptor.TYPE_SFIXED64:
            own = FIXED64
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_FIXED32 | FieldDescriptor.TYPE_SFIXED32:
            own = FIXED32
        case _:
            own = VARINT
    return (own, LENGTH_DELIMITED) if field.is_repeated else (own,)


def _look_at(descriptor: Descriptor, field: FieldDescriptor) -> _Look:
    """How to look at a field's value, or at each of its values; which bits are its own is for others to say."""
    is_closed = field.enum_type is not None and field.enum_type.is_closed  # what it does not name is no value of it
    if is_closed or field.name in options.deprecated_fields(descriptor.full_name):
        return _DOUBT
    rules = options.rules(descriptor.full_name).get(field.name, {})
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _DOUBT if rules.get("map") else _look_at_entries(field.message_type)
    if not field.is_repeated:
        return _look_at_value(field, rules)
    own = rules.get("repeated", {})
    if compile_rules("repeated", {name: argument for name, argument in own.items() if name != "items"}) is not None:
        return _DOUBT
    look = _look_at_value(field, own.get("items", {}))
    return look if look.judge is None or field.message_type is not None else _DOUBT


def _doubt(value: Any) -> bool:
    return False


_DOUBT = _Look(0, _doubt)


def _look_at_entries(entry: Descriptor) -> _Look:
    checks = [value_check(field, {}) for field in entry.fields]
    return _Look(0, _shape(entry).judge) if any(check is not None for check in checks) else _UNKNOWN


def _look_at_value(field: FieldDescriptor, rules: Rules) -> _Look:
    check = value_check(field, rules)
    if check is None:
        return _UNKNOWN
    if field.message_type is not None:
        return _look_at_message(field.message_type, check, has_rules=any(kind != "message" for kind in rules))
    if field.type == FieldDescriptor.TYPE_STRING and rules in _NOT_EMPTY:
        return _Look(0, bytes.decode)  # the verdict is the text: if there is none, no
    value_of = _VALUES.get(field.type)
    return _DOUBT if value_of is None else _Look(0, lambda raw: check(value_of(raw)) is None, _known.of_field())


# By far the commonest of all rules.
_NOT_EMPTY: tuple[Rules, ...] = ({"string": {"min_len": "1"}}, {"string": {"min_bytes": "1"}})


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


def _look_at_message(descriptor: Descriptor, check: Callable[[Any], object], *, has_rules: bool) -> _Look:
    """By its shape, unless the field itself asks something of it or it packs another; else it is read and checked."""
    parse = message_factory.GetMessageClass(descriptor).FromString
    right = _FOR_NOW if ANY in reachable(descriptor) else True

    def judge(body: bytes) -> object:
        try:
            return right if check(parse(body)) is None else False
        except DecodeError:
            return False

    if has_rules or descriptor.full_name == ANY:
        return _Look(0, judge, _known.of_field())
    return _Look(0, _shape(descriptor).judge, _known.of_field(), judge)

"""Decides from the canonical bytes of a message whether it surely keeps all rules.

A second validator beside `validate`: reading a new resource takes 37 us with it, and 74 us without. Pushed messages
are nearly always valid, and most of their parts were seen before: the address of an endpoint stays when its weight
changes. So the bytes are scanned field by field, and a submessage that was found valid is remembered by its bytes.
Whatever cannot be decided this way is left to `validate.check_constraints`, which reports the findings. The fast answer
may be False for a valid message; it must never be True for one with findings (``tests/codec/test_validate_fast.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from xds.codec.category_rules import category_rule
from xds.codec.rules import MessageRule, compile_rules
from xds.codec.validate import presence_rules, value_check
from xds.codec.value_rules import field_rules, message_rule, value_rule
from xds.codec.walk import ANY, reachable
from xds.proto import field_options
from xds.proto.field_options import Rules
from xds.wire.fields import FIXED32, FIXED64, LENGTH_DELIMITED, VARINT, WireFormatError, decode_varint

# Bounds of the memo: an endpoint with its weight has 30 bytes, and takes 150 bytes of memory besides.
REMEMBERED_LIMIT = 40_000
REMEMBERED_BYTES_LIMIT = 96

_FIXED = {FIXED64: 8, FIXED32: 4}  # bytes
_MORE = 0x80

_Values = set[int | bytes]
# Decides on a number as the wire holds it, or on the bytes of a length-delimited value: a true result means valid.
_Judge = Callable[[Any], object]
# A verdict: valid, but not to be remembered, because a type that an ``Any`` holds may be registered later.
_FOR_NOW = object()


class FastValidator:
    """Made by a server and used for all its pushes; what it remembers is bounded. Safe to use from several threads."""

    __slots__ = ("_memo", "_messages")

    def __init__(self) -> None:
        self._memo = _ValidValues()
        self._messages: dict[Descriptor, _MessageScan] = {}

    @property
    def remembered(self) -> int:
        """How many values are remembered as valid."""
        return self._memo.count

    def remembers(self, value: int | bytes) -> bool:
        """Whether a value of any field is remembered as valid."""
        return self._memo.holds(value)

    def is_surely_valid(self, descriptor: Any, body: bytes, message: Any = None) -> bool:
        """True when the message of these canonical bytes has no finding; False when it has one, or in doubt.

        ``message`` is what the bytes were made from or parsed to, if the caller has it.
        """
        try:
            scan = self._messages.get(descriptor) or self.message(descriptor)
            if not scan.judge(body):
                return False
            if scan.rule is None:
                return True
            return not scan.rule(
                message_factory.GetMessageClass(descriptor).FromString(body) if message is None else message
            )
        except (IndexError, UnicodeDecodeError, RecursionError, WireFormatError, DecodeError):
            return False

    def message(self, descriptor: Descriptor) -> _MessageScan:
        """The scan of a message type, compiled on first use: types refer to themselves."""
        scan = self._messages.get(descriptor)
        if scan is None:
            scan = self._messages.setdefault(descriptor, _MessageScan(descriptor, self, self._memo))
        return scan

    def new_values(self) -> _Values:
        """The memo of one field."""
        return self._memo.of_field()


class _ValidValues:
    """Values that were found valid, by field. All are forgotten when the limit is reached."""

    __slots__ = ("_by_field", "count")

    def __init__(self) -> None:
        self.count = 0
        self._by_field: list[_Values] = []

    def of_field(self) -> _Values:
        self._by_field.append(set())
        return self._by_field[-1]

    def holds(self, value: int | bytes) -> bool:
        return any(value in values for values in self._by_field)

    def keep(self, values: _Values, value: int | bytes) -> None:
        if self.count >= REMEMBERED_LIMIT:
            for each in self._by_field:
                each.clear()
            self.count = 0
        values.add(value)
        self.count += 1


class _FieldScan(NamedTuple):
    """How to scan a field.

    ``bits`` mark its presence. ``judge`` decides on each value, None where there is nothing to test; ``check`` decides
    in full where ``judge`` is in doubt. ``remembered`` are the values found valid, None where nothing is remembered.
    """

    bits: int
    judge: _Judge | None = None
    remembered: _Values | None = None
    check: _Judge | None = None


class _MessageScan:
    """The fields to scan in the bytes of a type, by tag; ``_needed`` are the presence bits of required fields.

    ``rule`` is the rule on the message as a whole, which `judge` does not check.
    """

    __slots__ = ("_descriptor", "_fields", "_memo", "_needed", "_validator", "rule")

    def __init__(self, descriptor: Descriptor, validator: FastValidator, memo: _ValidValues) -> None:
        self._descriptor = descriptor
        self._validator = validator
        self._memo = memo
        self.rule = message_rule(descriptor)
        self._fields: Mapping[int, _FieldScan] | None = None
        self._needed = 0

    def judge(self, body: bytes) -> object:
        """A true result: every field in ``body`` is valid, and the required ones are present."""
        fields = self._fields
        if fields is None:
            fields = self._compile()
        verdict: object = True
        seen = at = 0
        end = len(body)
        while at < end:
            # Most varints have one byte and are read here: a call for each would double the time.
            tag = body[at]
            at += 1
            if tag >= _MORE:
                tag, at = decode_varint(body, at - 1)
            bits, judge, remembered, check = fields.get(tag, _UNTESTED)
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
            if judge is None or (remembered is not None and value in remembered):
                continue
            own = judge(value) or (check is not None and check(value))
            if not own:
                return False
            verdict = own if own is _FOR_NOW else verdict
            # A value that is the whole of ``body`` is remembered with ``body``.
            size = at - start
            if remembered is not None and own is not _FOR_NOW and size <= REMEMBERED_BYTES_LIMIT and size + 2 != end:
                self._memo.keep(remembered, value)
        return verdict if at == end and seen & self._needed == self._needed else False

    def _compile(self) -> Mapping[int, _FieldScan]:
        """On first use: types refer to themselves."""
        bits = {field.name: 1 << place for place, field in enumerate(self._descriptor.fields)}
        needed, oneofs = presence_rules(self._descriptor)
        # An entry of a map is written with both its parts.
        self._needed = sum(bits[name] for name in (bits if self._descriptor.GetOptions().map_entry else needed))
        for place, members in enumerate(oneofs, len(bits)):  # a bit that any of them sets
            self._needed |= 1 << place
            bits |= {name: bits[name] | 1 << place for name in members}
        scans: dict[int, _FieldScan] = {}
        for field in self._descriptor.fields:
            scan = _scan_field(self._validator, self._descriptor, field)._replace(bits=bits[field.name])
            scans.update((field.number << 3 | form, scan) for form in _forms(field))
        self._fields = scans
        return scans


_UNTESTED = _FieldScan(0)


def _forms(field: FieldDescriptor) -> Iterable[int]:
    """The wire types that a field may have; repeated numbers may be packed or not."""
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


def _scan_field(validator: FastValidator, descriptor: Descriptor, field: FieldDescriptor) -> _FieldScan:
    """The scan of a field, or of each of its values, without its presence bits."""
    is_closed = field.enum_type is not None and field.enum_type.is_closed  # numbers without a name are not its values
    if is_closed or field.name in field_options.deprecated_fields(descriptor.full_name):
        return _DOUBT
    if value_rule(descriptor, field) is not None:
        return _DOUBT
    rules = field_rules(descriptor).get(field.name, {})
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _DOUBT if rules.get("map") else _scan_entries(validator, field.message_type)
    if not field.is_repeated:
        return _scan_value(validator, field, rules)
    own = rules.get("repeated", {})
    if compile_rules("repeated", {name: argument for name, argument in own.items() if name != "items"}) is not None:
        return _DOUBT
    scan = _scan_value(validator, field, own.get("items", {}))
    return scan if scan.judge is None or field.message_type is not None else _DOUBT


def _doubt(value: Any) -> bool:
    return False


_DOUBT = _FieldScan(0, _doubt)


def _scan_entries(validator: FastValidator, entry: Descriptor) -> _FieldScan:
    checks = [value_check(field, {}) for field in entry.fields]
    return _FieldScan(0, validator.message(entry).judge) if any(check is not None for check in checks) else _UNTESTED


def _scan_value(validator: FastValidator, field: FieldDescriptor, rules: Rules) -> _FieldScan:
    check = value_check(field, rules)
    if check is None:
        return _UNTESTED
    if field.message_type is not None:
        return _scan_message(
            validator, field, field.message_type, check, has_rules=any(kind != "message" for kind in rules)
        )
    if field.type == FieldDescriptor.TYPE_STRING and rules in _NOT_EMPTY:
        return _FieldScan(0, bytes.decode)  # the verdict is the text: an empty one is false
    value_of = _VALUES.get(field.type)
    return (
        _DOUBT if value_of is None else _FieldScan(0, lambda raw: check(value_of(raw)) is None, validator.new_values())
    )


# The most frequent rule of all.
_NOT_EMPTY: tuple[Rules, ...] = ({"string": {"min_len": "1"}}, {"string": {"min_bytes": "1"}})


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


# From the form on the wire; other types are rarely tested.
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


def _both(one: MessageRule | None, other: MessageRule | None) -> MessageRule | None:
    if one is None or other is None:
        return one or other
    return lambda message: one(message) or other(message)


def _scan_message(
    validator: FastValidator,
    field: FieldDescriptor,
    descriptor: Descriptor,
    check: Callable[[Any], object],
    *,
    has_rules: bool,
) -> _FieldScan:
    """By scanning its bytes; by parsing and checking it where the field or the type has rules of its own."""
    parse = message_factory.GetMessageClass(descriptor).FromString
    valid = _FOR_NOW if ANY in reachable(descriptor) else True

    def judge(body: bytes) -> object:
        try:
            return valid if check(parse(body)) is None else False
        except DecodeError:
            return False

    if has_rules or descriptor.full_name == ANY:
        return _FieldScan(0, judge, validator.new_values())
    rule = _both(message_rule(descriptor), category_rule(field))
    if rule is not None:
        scan = validator.message(descriptor)
        return _FieldScan(0, lambda body: not rule(parse(body)) and scan.judge(body), validator.new_values(), judge)
    return _FieldScan(0, validator.message(descriptor).judge, validator.new_values(), judge)

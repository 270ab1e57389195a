"""The validation rules of Envoy's .proto files (protoc-gen-validate), and the use of deprecated fields and values.

The rules of a type are compiled once, on first use, into a plan: the tests of each field that is set, and the finding
for each field that is not. Subtrees whose types can hold no rule are not visited. As in Envoy, the payload of an
``Any`` is validated like any other message; payloads of unknown types pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from xds.codec import schema
from xds.codec.category_rules import category_rule
from xds.codec.filter_rules import dropped_api_problem, is_dropped_api
from xds.codec.findings import Findings, json_pointer
from xds.codec.rules import NUMBERS, BrokenRule, Problem, RuleTest, compile_rules, nanoseconds
from xds.codec.value_rules import (
    DURATION,
    field_rules,
    ignored_codes,
    message_rule,
    refuses_old_types,
    ruled_types,
    value_rule,
)
from xds.codec.walk import ANY, reachable
from xds.proto import field_options
from xds.proto.field_options import Deprecation, Rules

_MISSING = "missing_field"
_DEPRECATED = ("deprecated_field", "deprecated_value")
# Clients of the v2 API are old releases of Envoy, which still accept what later releases refuse.
_REFUSING = ".v3."
# Types that Envoy does not validate, wherever they are packed: broken rules in them are warnings.
_DNS_RESOLVER = "envoy.extensions.network.dns_resolver"
_UNCHECKED = frozenset(
    (f"{_DNS_RESOLVER}.cares.v3.CaresDnsResolverConfig", f"{_DNS_RESOLVER}.hickory.v3.HickoryDnsResolverConfig")
)
_LISTENERS = frozenset(("envoy.config.listener.v3.Listener", "envoy.api.v2.Listener"))


_FIELD: Callable[[Any], Any] = itemgetter(0)  # of a pair from ``ListFields``
_Problems = list[Problem] | None
_Check = Callable[[Any], _Problems]


def check_constraints(message: Message, findings: Findings, *, is_partial: bool = False) -> None:
    """Add an error for every rule that ``message`` breaks, and a warning for every deprecated field and value.

    Deprecated fields that Envoy refuses (``disallowed_by_default``) are errors. Findings in an API listener are
    warnings, and so are broken rules in types that Envoy does not validate. A path with a finding gets no second one.
    ``is_partial``: the message was parsed with errors, so missing fields are not reported.
    """
    try:
        problems = _plan(message.DESCRIPTOR).check(message)
    except RecursionError:
        findings.add("too_deep", "nested too deeply")
        return
    if problems is not None:
        _note(problems, findings, is_partial=is_partial, only_warns=_is_api_listener(message))


def presence_rules(descriptor: Descriptor) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The required fields of a type by name, and the groups of fields of which one is required."""
    tests = _compile(descriptor)
    oneofs = (descriptor.oneofs_by_name[name] for name, _ in tests.oneofs)
    return (
        tuple(field.name for field in tests.absent),
        tuple(tuple(field.name for field in oneof.fields) for oneof in oneofs),
    )


def value_check(field: FieldDescriptor, rules: Rules) -> Callable[[Any], object] | None:
    """A check of one value of a field, or of one item of a list: it returns None for a valid value.

    ``rules`` are those of a single value. None where there is nothing to test.
    """
    return _chain(_value_checks(field, rules))


def _is_api_listener(message: Any) -> bool:
    """Envoy accepts API listeners in its bootstrap only. gRPC clients subscribe to them, and enforce few rules."""
    return message.DESCRIPTOR.full_name in _LISTENERS and bool(message.HasField("api_listener"))


def _note(problems: list[Problem], findings: Findings, *, is_partial: bool, only_warns: bool) -> None:
    place = findings.index, findings.resource
    known = {one.pointer for one in findings.violations if (one.index, one.resource) == place}
    for problem in problems:
        if json_pointer((*findings.base, *problem.path)) in known or (is_partial and problem.is_absence):
            continue
        note = findings.warn if only_warns or problem.is_warning else findings.add
        note(problem.code, problem.detail, problem.path, hint=problem.hint)


@dataclass(frozen=True, slots=True)
class _Tests:
    """A type's tests: by field that is set, by field that is not, by oneof.

    Fields are known by their descriptors, which are hashed by identity: these references keep that identity alive.
    """

    fields: Mapping[FieldDescriptor, _Check]
    absent: Mapping[FieldDescriptor, Problem]
    needed: frozenset[FieldDescriptor]  # those of ``absent``
    oneofs: tuple[tuple[str, Problem], ...]


class _Plan:
    """The tests of one type, compiled on first use: types refer to themselves."""

    __slots__ = ("_descriptor", "_rule", "_tests")

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._rule = message_rule(descriptor)
        self._tests: _Tests | None = None

    def check(self, message: Any) -> _Problems:
        """The problems within ``message``; None when there are none."""
        tests = self._tests
        if tests is None:
            tests = self._tests = _compile(self._descriptor)
        gathered: list[Problem] | None = None
        present = message.ListFields()
        checks = tests.fields
        for field, value in present:
            if field in checks and (problems := checks[field](value)) is not None:
                gathered = _within(field.name, problems, gathered)
        if not tests.needed.issubset(map(_FIELD, present)):
            missing = tests.needed - {field for field, _ in present}
            gathered = [*(gathered or ()), *(problem for field, problem in tests.absent.items() if field in missing)]
        for oneof, problem in tests.oneofs:
            if message.WhichOneof(oneof) is None:
                gathered = [*(gathered or ()), problem]
        if self._rule is not None and (problems := self._rule(message)):
            gathered = [*(gathered or ()), *problems]
        return gathered


def _within(step: str | int, problems: list[Problem], gathered: list[Problem] | None) -> list[Problem]:
    """``gathered`` with the problems of the value at ``step``."""
    if gathered is None:
        gathered = []
    gathered += [problem.below(step) for problem in problems]
    return gathered


@cache
def _plan(descriptor: Descriptor) -> _Plan:
    return _Plan(descriptor)


def _compile(descriptor: Descriptor) -> _Tests:
    rules = field_rules(descriptor)
    deprecated = field_options.deprecated_fields(descriptor.full_name)
    fields: dict[FieldDescriptor, _Check] = {}
    absent: dict[FieldDescriptor, Problem] = {}
    for field in descriptor.fields:
        own = rules.get(field.name, {})
        check = _chain(_field_checks(descriptor, field, own, deprecated.get(field.name)))
        if check is not None:
            codes = ignored_codes(descriptor, field)
            fields[field] = _ignoring(check, codes) if codes else check
        if (problem := _of_absence(field, own)) is not None:
            absent[field] = problem
    oneofs = (name for name in field_options.required_oneofs(descriptor.full_name) if name in descriptor.oneofs_by_name)
    return _Tests(fields, absent, frozenset(absent), tuple((name, _of_oneof(descriptor, name)) for name in oneofs))


def _ignoring(check: _Check, codes: frozenset[str]) -> _Check:
    """The check without the problems that have one of the ``codes``."""
    return lambda value: [one for one in check(value) or () if one.code not in codes] or None


def _of_oneof(descriptor: Descriptor, name: str) -> Problem:
    members = ", ".join(field.name for field in descriptor.oneofs_by_name[name].fields)
    return Problem((), _MISSING, f"{descriptor.name} needs one of {members}", is_absence=True)


def _field_checks(
    descriptor: Descriptor, field: FieldDescriptor, rules: Rules, deprecation: Deprecation | None
) -> Iterable[_Check]:
    if deprecation is not None:
        problem = _deprecated(f"{descriptor.name}.{field.name}", "field", descriptor.full_name, deprecation)
        yield lambda _: [problem]
    rule = value_rule(descriptor, field)
    if rule is not None:
        yield rule
    if _is_map(field):
        yield from _map_checks(field, rules.get("map", {}))
    elif field.is_repeated:
        yield from _list_checks(field, rules.get("repeated", {}))
    else:
        yield from _value_checks(field, rules)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _map_checks(field: FieldDescriptor, rules: Mapping[str, Any]) -> Iterable[_Check]:
    whole = _test_check(field.name, compile_rules("map", _without(rules, "keys", "values")))
    if whole is not None:
        yield whole
    assert field.message_type is not None
    entry = field.message_type.fields_by_name
    check_key = _chain(_value_checks(entry["key"], rules.get("keys", {})))
    check_value = _chain(_value_checks(entry["value"], rules.get("values", {})))
    if check_key is not None or check_value is not None:
        yield lambda value: _entries(value, check_key, check_value)


def _entries(entries: Any, check_key: _Check | None, check_value: _Check | None) -> _Problems:
    gathered: list[Problem] | None = None
    for key, item in entries.items():
        if check_key is not None and (problems := check_key(key)) is not None:
            gathered = _within(key, problems, gathered)
        if check_value is not None and (problems := check_value(item)) is not None:
            gathered = _within(key, problems, gathered)
    return gathered


def _list_checks(field: FieldDescriptor, rules: Mapping[str, Any]) -> Iterable[_Check]:
    whole = _test_check(field.name, compile_rules("repeated", _without(rules, "items")))
    if whole is not None:
        yield whole
    check = _chain(_value_checks(field, rules.get("items", {})))
    if check is not None:
        yield lambda value: _items(value, check)


def _items(items: Any, check: _Check) -> _Problems:
    gathered: list[Problem] | None = None
    for index, item in enumerate(items):
        problems = check(item)
        if problems is not None:
            gathered = _within(index, problems, gathered)
    return gathered


def _without(rules: Mapping[str, Any], *names: str) -> Rules:
    return {name: argument for name, argument in rules.items() if name not in names}


def _value_checks(field: FieldDescriptor, rules: Rules) -> Iterable[_Check]:
    """Checks of a single value: a field's, a list's item, a map's key or value."""
    for kind, own in rules.items():
        test = compile_rules(kind, own, field.enum_type) if kind not in ("message", "any") else None
        check = _test_check(field.name, _of_message(field, test))
        if check is not None:
            yield check
    if field.enum_type is not None:
        yield from _enum_checks(field.enum_type)
    if field.message_type is not None and not rules.get("message", {}).get("skip"):
        yield from (_check_configuration,) if refuses_old_types(field) else _descend(field.message_type)
    if (rule := category_rule(field)) is not None:
        yield rule


def _of_message(field: FieldDescriptor, test: RuleTest | None) -> RuleTest | None:
    """Rules on a wrapper type or a duration apply to the value in it."""
    if test is None or field.message_type is None:
        return test
    if field.message_type.full_name == DURATION:
        return lambda value: test(nanoseconds(value))
    return lambda value: test(value.value)


def _test_check(name: str, test: RuleTest | None) -> _Check | None:
    if test is None:
        return None

    def check(value: Any) -> _Problems:
        breach = test(value)
        return None if breach is None else [_problem(name, breach)]

    return check


def _problem(name: str, breach: BrokenRule) -> Problem:
    return Problem((), breach.code, f"{name} {breach.detail}", breach.hint, breach.is_warning)


def _enum_checks(enum: EnumDescriptor) -> Iterable[_Check]:
    problems = _deprecated_numbers(enum)
    if problems:
        yield lambda value: [problems[value]] if value in problems else None


def _deprecated_numbers(enum: EnumDescriptor) -> Mapping[int, Problem]:
    return {
        enum.values_by_name[name].number: _deprecated(f"{enum.name}.{name}", "value", enum.full_name, deprecation)
        for name, deprecation in field_options.deprecated_values(enum.full_name).items()
        if name in enum.values_by_name
    }


def _deprecated(what: str, noun: str, scope: str, deprecation: Deprecation) -> Problem:
    is_refused = deprecation.is_disallowed and _REFUSING in scope
    words = "is deprecated and refused by Envoy" if is_refused else "is deprecated"
    since = f" since {deprecation.since}" if deprecation.since else ""
    return Problem((), f"deprecated_{noun}", f"{what} {words}{since}", deprecation.advice, not is_refused)


def _check_configuration(packed: Any) -> _Problems:
    return [dropped_api_problem(packed.type_url)] if is_dropped_api(packed.type_url) else _check_any(packed)


def _descend(descriptor: Descriptor) -> Iterable[_Check]:
    if descriptor.full_name == ANY:
        yield _check_any
    elif descriptor.full_name == DURATION:
        return
    elif not _interesting().isdisjoint(reachable(descriptor)):
        yield _plan(descriptor).check


@cache
def _interesting() -> frozenset[str]:
    """Types with rules, and ``Any``, which may hold them."""
    return frozenset((ANY, DURATION, *field_options.messages(), *ruled_types()))


def _check_any(packed: Any) -> _Problems:
    known = _payload(packed.type_url)
    if known is None:
        return None
    message_class, check, prefix = known
    try:
        inner = message_class.FromString(packed.value)
    except DecodeError:
        return None
    problems = check(inner)
    return problems if problems is None or not prefix else _within(prefix, problems, None)


def _payload(type_url: str) -> tuple[type[Message], _Check, str] | None:
    """The class, the check and the path of the message in the JSON form; None when there is nothing to test."""
    descriptor = schema.descriptor(type_url)
    return None if descriptor is None else _known_payload(descriptor)


@cache
def _known_payload(descriptor: Descriptor) -> tuple[type[Message], _Check, str] | None:
    check = _chain(_descend(descriptor))
    if check is not None and descriptor.full_name in _UNCHECKED:
        check = _as_warnings(check)
    prefix = "value" if descriptor.full_name == ANY else ""
    return None if check is None else (message_factory.GetMessageClass(descriptor), check, prefix)


def _as_warnings(check: _Check) -> _Check:
    """Problems as warnings, except deprecated fields: Envoy checks those in every type."""

    def check_as_warnings(value: Any) -> _Problems:
        problems = check(value)
        return problems and [one if one.code in _DEPRECATED else one._replace(is_warning=True) for one in problems]

    return check_as_warnings


def _of_absence(field: FieldDescriptor, rules: Rules) -> Problem | None:
    """The problem when a field is not set; its path is that of the field."""
    problem = _unset(field, rules)
    return None if problem is None else problem._replace(path=(field.name,), is_absence=True)


def _unset(field: FieldDescriptor, rules: Rules) -> Problem | None:
    if field.containing_oneof is not None:
        return None
    if any(own.get("required") for own in rules.values()):
        return Problem((), _MISSING, f"{field.name} is required")
    if field.has_presence:
        return None
    test, default = _whole_test(field, rules), _default(field)
    breach = None if test is None else test(default)
    if breach is not None:
        is_missing = breach.code.startswith("too_")
        detail = f"{field.name} is required" if is_missing else f"{field.name} {breach.detail}"
        return Problem((), _MISSING if is_missing else breach.code, detail, f"set {field.name}")
    if field.enum_type is None or field.is_repeated:
        return None
    deprecated = _deprecated_numbers(field.enum_type).get(0)
    return None if deprecated is None or deprecated.is_warning else deprecated


def _whole_test(field: FieldDescriptor, rules: Rules) -> RuleTest | None:
    for kind, own in rules.items():
        if kind in ("repeated", "map"):
            return compile_rules(kind, _without(own, "items", "keys", "values"))
        if kind in NUMBERS or kind in ("string", "bytes", "bool", "enum"):
            return compile_rules(kind, own, field.enum_type)
    return None


def _default(field: FieldDescriptor) -> Any:
    return () if field.is_repeated else field.default_value


def _chain(checks: Iterable[_Check]) -> _Check | None:
    every = tuple(checks)
    if len(every) < 2:
        return every[0] if every else None

    def check(value: Any) -> _Problems:
        return [problem for one in every for problem in one(value) or ()] or None

    return check

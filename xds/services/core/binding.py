"""A binding: the assignment of a cluster follows a service of the catalog. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from xds.filter.expression import EvaluationError, FilterError
from xds.filter.filter import Filter, compile_filter
from xds.model.errors import ValidationError, Violation
from xds.services.core.index import ServiceInstance
from xds.services.core.instance import (
    INSTANCE_SHAPE,
    NAME_CHARACTERS,
    check_service_name,
    instance_record,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """The service that an assignment follows, and the instances that become its endpoints.

    * ``filter``: selects instances, in the filter language over `instance_record`; empty for all instances;
    * ``port``: the name of the port; empty for the port without a name;
    * ``datacenter``: empty for all; an instance without one is in that of this server;
    * ``only_passing``: an instance with a warning gets no requests either.
    """

    service: str
    filter: str = ""
    port: str = ""
    datacenter: str = ""
    only_passing: bool = False

    def document(self) -> Json:
        """The binding as JSON, without defaults. ``read_binding`` reads it."""
        return {name: value for name, value in asdict(self).items() if value}


_TYPES: Mapping[str, type] = {each.name: bool if each.name == "only_passing" else str for each in fields(Binding)}
_EXPECTED: Mapping[type, str] = {str: f"a string of at most {NAME_CHARACTERS} characters", bool: "true or false"}
_FILTER_CHARACTERS = 4096


def read_binding(document: object) -> Binding:
    """A binding from JSON. This may compile a filter, which takes a while. Raises ``ValidationError``."""
    if not isinstance(document, dict):
        raise ValidationError([Violation("wrong_type", "a binding must be an object with the service")])
    violations = [_unknown(name) for name in document if name not in _TYPES]
    values: Json = {name: value for name, value in document.items() if name in _TYPES and value is not None}
    for name, value in values.items():
        limit = _FILTER_CHARACTERS if name == "filter" else NAME_CHARACTERS
        if type(value) is not _TYPES[name] or (isinstance(value, str) and len(value) > limit):
            violations.append(Violation("wrong_type", f"{name} must be {_EXPECTED[_TYPES[name]]}", pointer=f"/{name}"))
    if not violations:
        violations += check_service_name(values.get("service", ""), "/service")
        violations += _check_filter(values.get("filter", ""))
    if violations:
        raise ValidationError(violations)
    return Binding(**values)


def _check_filter(text: str) -> Iterator[Violation]:
    try:
        compile_filter(text).check(INSTANCE_SHAPE)
    except FilterError as error:
        detail = f"filter, column {error.column}: {error.detail}"
        hint = error.hint or "docs/filter.md describes the language"
        yield Violation("invalid_filter", detail, pointer="/filter", hint=hint)


def _unknown(name: object) -> Violation:
    hint = f"the fields are {', '.join(_TYPES)}"
    return Violation("unknown_field", f"unknown field {name!r:.60}", pointer=f"/{name!s:.60}", hint=hint)


@dataclass(slots=True)
class InstanceSelection:
    """The instances that a binding selects.

    An instance on which the filter cannot be evaluated is not selected, and counted in ``failures``.
    """

    binding: Binding
    datacenter: str = ""  # that of this server
    failures: int = 0
    _filter: Filter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = compile_filter(self.binding.filter)

    def select(self, instances: Iterable[ServiceInstance]) -> Iterator[ServiceInstance]:
        """The selected instances."""
        return (one for one in instances if self.is_selected(one))

    def is_selected(self, one: ServiceInstance) -> bool:
        """Whether the binding selects the instance. A filter that cannot be evaluated counts as a failure."""
        wanted = self.binding.datacenter
        if wanted and (one.instance.datacenter or self.datacenter) != wanted:
            return False
        if not self.binding.filter:
            return True
        try:
            return self._filter.matches(instance_record(self.binding.service, one.instance, one.health))
        except EvaluationError:
            self.failures += 1
            return False

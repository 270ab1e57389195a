"""Reads the fields of a JSON object, and collects what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from xds.filter.selector import read_selector
from xds.model.errors import ValidationError, Violation

TEXT_LIMIT = 16_384  # characters; of an id, a selector, a message

Choice = TypeVar("Choice", bound=StrEnum)
Value = TypeVar("Value")


class FieldReader:
    """The fields of the object at the JSON pointer ``at``. A field that is missing or null has its default.

    A wrong value is a finding, and the default is returned. ``finish`` raises the findings.
    """

    def __init__(self, document: object, at: str, names: Collection[str]) -> None:
        self.at = at
        self.findings: list[Violation] = []
        self._given: dict[str, Any] = {}
        if not isinstance(document, dict):
            self.findings.append(Violation("wrong_type", f"{at or 'the document'} must be an object", pointer=at))
            return
        self._given = {name: value for name, value in document.items() if value is not None}
        hint = f"the fields are {', '.join(names)}"
        for name in document:
            if name not in names:
                pointer = f"{at}/{name!s:.60}"
                self.findings.append(
                    Violation("unknown_field", f"unknown field {name!r:.60}", pointer=pointer, hint=hint)
                )

    def given(self, name: str, default: Any = None) -> Any:
        """The value as it is written."""
        return self._given.get(name, default)

    def add(self, code: str, name: str, detail: str, hint: str = "") -> None:
        """Add a finding about a field."""
        self.findings.append(Violation(code, f"{name} {detail}", pointer=f"{self.at}/{name}", hint=hint))

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number between ``least`` and ``most``."""
        return float(self._within(name, default, least, most, (int, float), "a number"))

    def number_or_none(self, name: str, least: float, most: float) -> float | None:
        """As `number`; None if it is missing."""
        return self.number(name, least, least, most) if self.given(name) is not None else None

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """An integer between ``least`` and ``most``."""
        return int(self._within(name, default, least, most, (int,), "an integer"))

    def integers(self, name: str, most_n: int, most: int) -> tuple[int, ...]:
        """At most ``most_n`` integers between 0 and ``most``; none if it is missing."""
        values = self.given(name, [])
        is_short = isinstance(values, list) and len(values) <= most_n
        if is_short and all(type(value) is int and 0 <= value <= most for value in values):
            return tuple(values)
        self.add("wrong_type", name, f"must be a list of at most {most_n} integers from 0 to {most}")
        return ()

    def _within(
        self, name: str, default: float, least: float, most: float, kinds: Collection[type], what: str
    ) -> float:
        value: float = self.given(name, default)
        if type(value) not in kinds:  # a boolean is no number
            self.add("wrong_type", name, f"must be {what}")
        elif not least <= value <= most:
            self.add("out_of_range", name, f"must be between {least:.15g} and {most:.15g}")
        else:
            return value
        return default

    def text(self, name: str, default: str = "") -> str:
        """A string of at most ``TEXT_LIMIT`` characters."""
        value = self.given(name, default)
        if isinstance(value, str) and len(value) <= TEXT_LIMIT:
            return value
        self.add("wrong_type", name, f"must be a string of at most {TEXT_LIMIT} characters")
        return default

    def texts(self, name: str, default: Collection[str], most: int) -> tuple[str, ...]:
        """At most ``most`` strings."""
        values = self.given(name, list(default))
        if not isinstance(values, list):
            self.add("wrong_type", name, "must be a list of strings")
        elif len(values) > most:
            self.add("too_many", name, f"has {len(values)} items, {most} are allowed")
        elif not all(isinstance(value, str) and 0 < len(value) <= TEXT_LIMIT for value in values):
            self.add("wrong_type", name, f"must have strings of 1 to {TEXT_LIMIT} characters")
        else:
            return tuple(values)
        return tuple(default)

    def selector(self, name: str, default: str = "") -> str:
        """A string that is a selector. Compiling it may take long, so call this in a thread."""
        text = self.text(name, default)
        self.nested(name, None, lambda _, pointer: read_selector(text, pointer))
        return text

    def nested(self, name: str, default: Value, read: Callable[[Any, str], Value]) -> Value:
        """A value that ``read`` reads at its pointer. It raises ``ValidationError``."""
        try:
            return read(self._given[name], f"{self.at}/{name}") if name in self._given else default
        except ValidationError as error:
            self.findings += error.violations
            return default

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.given(name, default)
        if isinstance(value, bool):
            return value
        self.add("wrong_type", name, "must be true or false")
        return default

    def choice(self, name: str, default: Choice) -> Choice:
        """A member of the enumeration of ``default``."""
        kind, value = type(default), self.given(name, str(default))
        try:
            return kind(value)
        except ValueError:
            self.add("invalid_value", name, f"must be {' or '.join(kind)}, not {value!r:.40}")
        return default

    def finish(self) -> None:
        """Raise ``ValidationError`` with all findings, if there are any."""
        if self.findings:
            raise ValidationError(self.findings)

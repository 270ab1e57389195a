"""What is wrong with pushed input, collected while it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xds.model.errors import ERROR, WARNING, Violation
from xds.model.resource_type import alias_of

# More findings than a person reads, and than an answer should carry.
FINDINGS_LIMIT = 100
SHOWN_LIMIT = 80
_NOTATION = re.compile(r"[-_ ]")


def json_pointer(path: Iterable[str | int]) -> str:
    """RFC 6901: ``("a/b", 0)`` is ``/a~1b/0``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def shown(value: object) -> str:
    """A value for a person; long ones are cut."""
    text = repr(value)
    return f"{text[:SHOWN_LIMIT]}{'...' if len(text) > SHOWN_LIMIT else ''}"


def bare(name: str) -> str:
    """A name without what notations differ in: ``statPrefix`` and ``stat_prefix`` alike."""
    return _NOTATION.sub("", name).lower()


def resource_label(type_url: str, name: str) -> str:
    """How findings call a resource: ``clusters/c1``."""
    return f"{alias_of(type_url)}/{name}"


class Findings:
    """Violations of one document, warnings apart from errors: ``len`` and truth are those of the errors.

    ``index`` says which resource is being read (-1: the only one), ``base`` is where its message stands within it (in
    a wrapper: ``("resource",)``).
    """

    def __init__(self, source: str = "") -> None:
        self.index = -1
        self.base: tuple[str | int, ...] = ()
        self.violations: list[Violation] = []
        self.warnings: list[Violation] = []
        self._source = source
        self._type_url = self._name = ""

    def __len__(self) -> int:
        return len(self.violations)

    def __bool__(self) -> bool:
        return bool(self.violations)

    @property
    def is_full(self) -> bool:
        """True once errors are dropped: nobody needs to ponder over them."""
        return len(self.violations) >= FINDINGS_LIMIT

    @property
    def resource(self) -> str:
        """How the resource is called. Told when asked, for hardly any has a finding."""
        if self._name:
            return resource_label(self._type_url, self._name)
        return f"resources[{self.index}]" if self.index >= 0 else ""

    def turn_to(self, index: int) -> None:
        """What follows is about the resource at this position, whose name is not known yet."""
        self.index, self._name = index, ""

    def name_resource(self, type_url: str, name: str) -> None:
        """What follows is about the resource of this name."""
        self._type_url, self._name = type_url, name

    def add(self, code: str, detail: str, path: Iterable[str | int] = (), *, hint: str = "") -> None:
        """Note an error at ``path`` within the message; those behind the limit are dropped."""
        self._note(self.violations, ERROR, code, detail, path, hint)

    def warn(self, code: str, detail: str, path: Iterable[str | int] = (), *, hint: str = "") -> None:
        """Note what is accepted and should be mended all the same; bounded likewise."""
        self._note(self.warnings, WARNING, code, detail, path, hint)

    def _note(
        self,
        found: list[Violation],
        severity: str,
        code: str,
        detail: str,
        path: Iterable[str | int],
        hint: str,
    ) -> None:
        if len(found) < FINDINGS_LIMIT:
            pointer = json_pointer((*self.base, *path))
            found.append(Violation(code, detail, self.resource, pointer, self._source, severity, hint, self.index))

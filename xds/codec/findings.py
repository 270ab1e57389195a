"""Findings: what is wrong with pushed input, collected while it is read, and hints that say how to correct it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration

from xds.codec import schema
from xds.codec.effort import leave_loop
from xds.model.errors import ERROR, WARNING, Violation
from xds.model.resource_type import TYPE_PREFIX, alias_of
from xds.model.units import UNIT_S

# More findings than a person reads.
FINDINGS_LIMIT = 100
SHOWN_LIMIT = 80
# A path within a message: field names, list indices and map keys.
FieldPath = tuple[str | int, ...]

_NOTATION = re.compile(r"[-_ ]")


def json_pointer(path: Iterable[str | int]) -> str:
    """RFC 6901: ``("a/b", 0)`` is ``/a~1b/0``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def short_repr(value: object) -> str:
    """The ``repr`` of a value for messages; long ones are truncated."""
    text = repr(value)
    return f"{text[:SHOWN_LIMIT]}{'...' if len(text) > SHOWN_LIMIT else ''}"


def normalized_name(name: str) -> str:
    """A name without case and separators: equal for ``statPrefix`` and ``stat_prefix``."""
    return _NOTATION.sub("", name).lower()


def resource_label(type_url: str, name: str) -> str:
    """The name of a resource in findings: ``clusters/c1``."""
    return f"{alias_of(type_url)}/{name}"


class Findings:
    """Errors and warnings of one document. Length and truth count the errors only.

    ``index`` is the resource that is being read (-1: the only one), ``base`` the path of its message within it (in a
    wrapper: ``("resource",)``).
    """

    def __init__(self, source: str = "") -> None:
        self.index = -1
        self.base: FieldPath = ()
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
        """True once further errors are dropped: hints need not be computed any more."""
        return len(self.violations) >= FINDINGS_LIMIT

    @property
    def resource(self) -> str:
        """The name of the resource in findings, computed on demand: few resources have findings."""
        if self._name:
            return resource_label(self._type_url, self._name)
        return f"resources[{self.index}]" if self.index >= 0 else ""

    def select_resource(self, index: int) -> None:
        """Further findings are about the resource at this position, whose name is not known yet."""
        self.index, self._name = index, ""

    def name_resource(self, type_url: str, name: str) -> None:
        """Further findings are about the resource with this name."""
        self._type_url, self._name = type_url, name

    def add(self, code: str, detail: str, path: Iterable[str | int] = (), *, hint: str = "") -> None:
        """Add an error at ``path`` within the message; errors beyond the limit are dropped."""
        self._note(self.violations, ERROR, code, detail, path, hint)

    def warn(self, code: str, detail: str, path: Iterable[str | int] = (), *, hint: str = "") -> None:
        """Add a warning: the input is accepted, and should be corrected. Bounded like errors."""
        self._note(self.warnings, WARNING, code, detail, path, hint)

    def _note(
        self,
        findings: list[Violation],
        severity: str,
        code: str,
        detail: str,
        path: Iterable[str | int],
        hint: str,
    ) -> None:
        leave_loop()  # hints compare texts, and so do the positions that findings get
        if len(findings) < FINDINGS_LIMIT:
            pointer = json_pointer((*self.base, *path))
            findings.append(Violation(code, detail, self.resource, pointer, self._source, severity, hint, self.index))


# Longer names get no hint: the time to compare grows with the square of the length.
NAME_LIMIT = 120
_TYPE_CUTOFF = 0.85
_DURATION_LIMIT_S = 315_576_000_000  # of protobuf's Duration: some 10,000 years
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(ms|us|s|m|h)?")


# Fields that v3 dropped, by message and normalized name, and what took their place.
_OF_V2 = {
    ("Cluster", "hosts"): "load_assignment",
    ("Cluster", "tlscontext"): "transport_socket",
    ("FilterChain", "tlscontext"): "transport_socket",
    ("Filter", "config"): "typed_config",
    ("HttpFilter", "config"): "typed_config",
    ("AccessLog", "config"): "typed_config",
    ("TransportSocket", "config"): "typed_config",
}


def field_hint(key: str, descriptor: Descriptor) -> str:
    """``did you mean "stat_prefix"?`` for a key that resembles a field, in any case or notation."""
    if len(key) > NAME_LIMIT:
        return ""
    if (descriptor.name, normalized_name(key)) in _OF_V2:
        return f"a field of the v2 API; use {_OF_V2[descriptor.name, normalized_name(key)]}"
    names = {normalized_name(field.name): field.name for field in descriptor.fields}
    close = get_close_matches(normalized_name(key), list(names), n=1)
    return f'did you mean "{names[close[0]]}"?' if close else ""


def type_hint(type_url: str) -> str:
    """The type that a URL resembles: misspelt, of another version, or moved to another package."""
    name = type_url.rpartition("/")[2]
    if not name or len(name) > NAME_LIMIT:
        return ""
    if schema.descriptor(name) is not None:
        return f'did you mean "{TYPE_PREFIX}{name}"?'
    close = get_close_matches(name, [one for one in schema.message_names() if _may_mean(name, one)], n=1, cutoff=0.0)
    return f'did you mean "{TYPE_PREFIX}{close[0]}"?' if close else OWN_TYPE_HINT


OWN_TYPE_HINT = (
    "a type of your own, or of an Envoy with extensions of its own, needs its descriptor set (--descriptor-set FILE, "
    "or codec.descriptor_sets of the server);"
)
_VERSION = re.compile(r"v[0-9]+(alpha|beta)?[0-9]*")
_ALIKE = 0.8


def _may_mean(name: str, known: str) -> bool:
    """Whether a type may be a known one: misspelt, or moved. Another extension or API version is another type."""
    if _version(name) != _version(known):
        return False
    (package, extension, own), (other_package, other_extension, other) = _parts(name), _parts(known)
    if extension == other_extension and own == other:
        return True  # in another package
    return (
        _is_alike(extension, other_extension)
        and _is_alike(own, other)
        and SequenceMatcher(None, package, other_package).ratio() >= _TYPE_CUTOFF
    )


def _is_alike(text: str, other: str) -> bool:
    return text == other or (abs(len(text) - len(other)) <= 2 and SequenceMatcher(None, text, other).ratio() >= _ALIKE)


def _version(name: str) -> str:
    return next((part for part in reversed(name.split(".")) if _VERSION.fullmatch(part)), "")


def _parts(name: str) -> tuple[str, str, str]:
    """Package, extension and name: ``envoy.extensions.filters.http``, ``router``, ``Router``."""
    *package, own = [part for part in name.split(".") if not _VERSION.fullmatch(part)]
    return ".".join(package[:-1]), package[-1] if package else "", own


def duration_hint(value: object) -> str:
    """How to write the duration that ``value`` seems to be: ``100ms`` is ``0.100s``. Empty if it is not a duration."""
    match = None if isinstance(value, bool) else _SPAN.fullmatch(str(value)[:NAME_LIMIT])
    if match is None:
        return ""
    seconds = float(match[1]) * UNIT_S[match[2] or "s"]
    if seconds > _DURATION_LIMIT_S:
        return ""
    span = Duration()
    span.FromNanoseconds(round(seconds * 1e9))
    return f'write "{span.ToJsonString()}"'

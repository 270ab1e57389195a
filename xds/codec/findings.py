"""What is wrong with pushed input, collected while it is read."""

from __future__ import annotations

from collections.abc import Iterable

from xds.model.errors import Violation

# More findings than a person reads, and than an answer should carry.
FINDINGS_LIMIT = 100


def json_pointer(path: Iterable[str | int]) -> str:
    """RFC 6901: ``("a/b", 0)`` is ``/a~1b/0``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class Findings:
    """Violations of one document; ``resource`` names the resource that is being read."""

    def __init__(self, source: str = "") -> None:
        self.resource = ""
        self.violations: list[Violation] = []
        self._source = source

    def __len__(self) -> int:
        return len(self.violations)

    def __bool__(self) -> bool:
        return bool(self.violations)

    def add(self, code: str, detail: str, path: Iterable[str | int] = ()) -> None:
        """Note a finding at ``path`` within the resource; those behind the limit are dropped."""
        if len(self.violations) < FINDINGS_LIMIT:
            self.violations.append(Violation(code, detail, self.resource, json_pointer(path), self._source))

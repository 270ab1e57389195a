"""Check the repository: names, sizes, docstrings, state, walks, references. Exits 1 with a list of what is wrong.

``--figures`` prints counts instead; ``--repoint`` updates links to functions that moved to another module.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.house.figures import figures, undocumented
from tools.house.names import duplicate_classes, duplicate_modules, long_modules, named_products
from tools.house.references import broken_references, repoint
from tools.house.source import Finding, Repository
from tools.house.state import shared_state
from tools.house.walks import long_walks

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")


def check(repository: Repository, exceptions: Path = EXCEPTIONS) -> Iterator[Finding]:
    """All findings that are not excepted, and all exceptions that are not needed."""
    excepted = tomllib.loads(exceptions.read_text())
    yield from duplicate_classes(repository, excepted["classes"])
    yield from duplicate_modules(repository, excepted["modules"])
    yield from named_products(repository, excepted["products"])
    yield from long_modules(repository)
    yield from undocumented(repository)
    yield from long_walks(repository)
    yield from shared_state(repository, pure_packages(repository), excepted["state"])
    unmended = excepted["references"]["unmended"]
    broken = list(broken_references(repository, excepted["references"]["foreign"]))
    yield from (finding for finding in broken if not finding.path.startswith(tuple(unmended)))
    needed = {
        *(finding.subject for finding in duplicate_classes(repository, ())),
        *(finding.subject for finding in duplicate_modules(repository, {})),
        *(finding.subject for finding in named_products(repository, {})),
        *(finding.subject for finding in shared_state(repository, pure_packages(repository), {})),
        *(path for path in unmended if any(finding.path.startswith(path) for finding in broken)),
    }
    for name in (*excepted["classes"], *excepted["modules"], *excepted["products"], *excepted["state"], *unmended):
        if name not in needed:
            yield Finding(exceptions.name, 1, f"the exception for {name!r} is not needed", name)


def pure_packages(repository: Repository) -> Sequence[str]:
    """The packages that the import contract names as pure."""
    settings = repository.root / "pyproject.toml"
    contracts = tomllib.loads(settings.read_text())["tool"]["importlinter"]["contracts"] if settings.is_file() else ()
    return [name for each in contracts if each["name"].startswith("Pure") for name in each["source_modules"]]


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--figures", action="store_true", help="print counts")
    parser.add_argument("--repoint", action="store_true", help="mend links to functions that moved")
    arguments = parser.parse_args()
    repository = Repository(Path(__file__).parents[2])
    if arguments.figures:
        for what, count in figures(repository).items():
            print(f"{count:>10,g}  {what}")
        return 0
    if arguments.repoint:
        for path in [path for path in repository.texts if path.endswith(".md")]:
            text, moved = repoint(repository, path)
            if moved:
                (repository.root / path).write_text(text)
                print(f"{path}: {moved} links")
        return 0
    findings = list(check(repository))
    print(*findings, sep="\n", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

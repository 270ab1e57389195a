"""The check of the walks counts the files that a reader opens."""

from __future__ import annotations

from tests.house.conftest import MakeRepository
from tools.house.figures import figures
from tools.house.walks import FILES_LIMIT, long_walks, walks

PAGE = """# Walk

The steps are the main line, in {count} files.

1. [`push`](../../xds/a.py) calls [`plan`](../../xds/b.py),
   then [`commit`](../../xds/a.py).

*Beside the way:* [`check`](../../xds/c.py) checks it,
also on [the page](../design.md).
"""


def test_files_beside_the_way_are_counted_apart(make: MakeRepository) -> None:
    repository = make(
        {"docs/internals/walk-of-a-push.md": PAGE.format(count=2), "xds/a.py": "", "docs/design.md": "# Design\n"}
    )
    (walk,) = walks(repository)
    assert walk.main_line == {"xds/a.py", "xds/b.py"} and walk.every == {*walk.main_line, "xds/c.py"}
    assert not list(long_walks(repository))
    counted = figures(repository)
    assert counted["files on the main line of a walk of a push"] == 2
    assert counted["files of a walk of a push, with those beside the way"] == 3


def test_a_page_that_says_another_number_is_found(make: MakeRepository) -> None:
    (finding,) = long_walks(make({"docs/internals/walk-of-a-push.md": PAGE.format(count=3)}))
    assert finding.detail == "the page does not say that its main line is in 2 files"


def test_a_walk_has_a_limit_of_files(make: MakeRepository) -> None:
    count = FILES_LIMIT + 1
    steps = "".join(f"\n1. [`a`](../../xds/a{number}.py)\n" for number in range(count))
    page = f"# Walk\n\nThe main line, in {count} files.\n{steps}"
    (finding,) = long_walks(make({"docs/internals/walk-of-a-push.md": page}))
    assert finding.detail == f"{count} files on the main line; a walk has at most {FILES_LIMIT}"

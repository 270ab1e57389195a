"""How many single mistakes Envoy rejects and this server accepts.

    python -m bench.mistakes FOLDER... [--count 1000] [--resources 500] [--seed 1] [--show 40] [--refused]

Reads every resource in the folders' configuration files, asks a real Envoy for those that it accepts, makes one mistake
in each of ``--count`` of them, and asks Envoy and this server for a verdict. It needs ``unshare`` and the rights of
root: Envoy runs in a network namespace of its own. Folders of public configurations, such as golden files of other
control planes, are not part of this repository.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.mistakes.corpus import Json, Sample, samples
from bench.mistakes.mutate import MISTAKES, mistake
from tests.support.judging_envoy import JudgingEnvoy
from xds.codec.crosscheck import check_references
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.model.errors import ValidationError
from xds.model.resource_type import CLUSTER

# What no reader of one resource can know: what else the proxy has.
_ELSEWHERE = ("unknown cluster", "nknown static", "file does not exist", "no such file", "nvalid path", "nable to open")


@dataclass(frozen=True, slots=True)
class Row:
    """One mistake: what was made of a resource, what Envoy says (empty: taken), what this server says."""

    kind: str
    sample: Sample
    change: str
    envoy: str
    own: str
    warned: str


def check(value: Json) -> tuple[str, str]:
    """This server's errors and warnings for one resource, as ``xds validate`` finds them."""
    try:
        push: DecodedPush = ResourceDecoder(remembers=False).document(json.dumps({"resources": [value]}), "json")
    except ValidationError as error:
        return str(error.violations[0]), ""
    found = check_references(push.resources)
    errors = [str(one) for one in found if one.severity == "error"]
    return "; ".join(errors), "; ".join(map(str, push.warnings))


def named_clusters(found: Iterable[Sample]) -> Iterator[str]:
    """The clusters that the resources refer to: Envoy refuses a static route to one that it has not."""
    for one in found:
        try:
            push = ResourceDecoder(remembers=False).document(json.dumps({"resources": [one.value]}), "json")
        except ValidationError:
            continue
        for reference in push.resources[0].references:
            if reference.type_url == CLUSTER and reference.name != "*":
                yield reference.name


def accepted(envoy: JudgingEnvoy, found: Iterable[Sample], *, shows: bool, limit: int) -> list[Sample]:
    """Those that Envoy accepts; prints which of them this server refuses, and a count of the four cases."""
    counts: Counter[tuple[bool, bool]] = Counter()
    held = []
    for one in found:
        said = envoy.verdict(one.kind, one.value)
        if said is None:
            continue
        own, _ = check(one.value)
        counts[not said, not own] += 1
        if not said:
            held.append(one)
        if (not said and own) or (said and not own and shows and not _is_elsewhere(said)):
            limit -= 1
            if limit >= 0:
                print(f"  {one.kind} {one.file}\n    Envoy: {said or 'accepted'}\n    here:  {own or 'accepted'}")
    print(f"as they are: both accept {counts[True, True]}, Envoy alone {counts[True, False]}, ", end="")
    print(f"this server alone {counts[False, True]}, both refuse {counts[False, False]}")
    return held


def _is_elsewhere(said: str) -> bool:
    return any(words in said for words in _ELSEWHERE)


def rows(envoy: JudgingEnvoy, held: list[Sample], count: int, chance: random.Random) -> Iterator[Row]:
    """One row for each mistake: the kinds take turns, the resources are drawn."""
    made = attempts = 0
    while made < count and attempts < 50 * count:
        kind = MISTAKES[made % len(MISTAKES)]
        sample = chance.choice(held)
        attempts += 1
        changed = mistake(sample.value, kind, chance)
        if changed is None:
            continue
        said = envoy.verdict(sample.kind, changed[0])
        if said is None:
            continue
        made += 1
        own, warned = check(changed[0])
        yield Row(kind, sample, changed[1], said, own, warned)


def table(found: list[Row]) -> None:
    """Print the rows by kind of mistake, and their sum."""
    print(f"{'mistake':20} {'both refuse':>12} {'taken here':>11} {'warned':>7} {'refused here':>13} {'both take':>10}")
    for kind in (*MISTAKES, "all"):
        of_kind = [row for row in found if kind in (row.kind, "all") and not _is_elsewhere(row.envoy)]
        taken = [row for row in of_kind if row.envoy and not row.own]
        print(
            f"{kind:20} {sum(bool(row.envoy and row.own) for row in of_kind):12} {len(taken):11}"
            f" {sum(bool(row.warned) for row in taken):7} {sum(bool(not row.envoy and row.own) for row in of_kind):13}"
            f" {sum(not row.envoy and not row.own for row in of_kind):10}"
        )
    refused = [row for row in found if row.envoy and not _is_elsewhere(row.envoy)]
    taken = [row for row in refused if not row.own]
    silent = [row for row in taken if not row.warned]
    print(f"of {len(refused)} mistakes that Envoy refuses, {len(taken)} are taken ({len(silent)} without a warning)")
    print(f"{sum(_is_elsewhere(row.envoy) for row in found)} that name what this Envoy does not have are not counted")


def show(found: Iterable[Row], limit: int) -> None:
    """Print what Envoy refuses and this server takes."""
    missed = [row for row in found if row.envoy and not row.own and not _is_elsewhere(row.envoy)]
    for row in missed[:limit]:
        print(f"  {row.kind}: {row.sample.kind} {row.sample.file.name} {row.change}\n    {row.envoy}")
        if row.warned:
            print(f"    warned: {row.warned}")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--resources", type=int, default=0, help="how many resources are drawn; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=40, help="how many missed mistakes are printed")
    parser.add_argument("--refused", action="store_true", help="also print samples that only Envoy refuses")
    arguments = parser.parse_args()
    found = samples(arguments.folders)
    chance = random.Random(arguments.seed)
    if 0 < arguments.resources < len(found):
        found = chance.sample(found, arguments.resources)
    print(f"{len(found)} resources: {dict(Counter(one.kind for one in found))}")
    with (
        TemporaryDirectory() as directory,
        JudgingEnvoy(Path(directory), named_clusters(found), has_own_network=True) as envoy,
    ):
        held = accepted(envoy, found, shows=arguments.refused, limit=arguments.show)
        made = list(rows(envoy, held, arguments.count, chance))
    table(made)
    show(made, arguments.show)


if __name__ == "__main__":
    main()

"""A mixed set that an earlier process made is found by the hash in its label (docs/protocol.md#coming-back)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.sansio import make_resource
from xds.model.resource_type import CLUSTER, resource_type
from xds.model.snapshot import ResourceSet, mix
from xds.protocol.diffs import Diffs
from xds.protocol.mixtures import mixture_of


def clusters(label: str, texts: Mapping[str, str]) -> ResourceSet:
    """A pushed set."""
    made = {name: make_resource(CLUSTER, name, text) for name, text in texts.items()}
    return ResourceSet(resource_type(CLUSTER), label, made)


def named(count: int, prefix: str = "x", text: str = "@1") -> dict[str, str]:
    """Texts of so many clusters."""
    return {f"{prefix}{number}": text for number in range(count)}


def found(held: ResourceSet, base: ResourceSet, *earlier: ResourceSet) -> ResourceSet | None:
    """The set that is found by the hash of ``held``; ``earlier`` has the newest set first."""
    shown = held.version_info.rpartition("+")[2]
    return mixture_of(base, (base, *earlier), shown, Diffs().change)


ONE_OF_MANY = "x17"  # of 18, beyond what could be tried one by one


@pytest.mark.parametrize(
    "kept",
    [(ONE_OF_MANY,), ("x0", "x5", ONE_OF_MANY), tuple(f"x{number}" for number in range(9, 18))],
    ids=["one", "some", "half"],
)
def test_some_of_many_changed_names_are_as_they_were(kept: tuple[str, ...]) -> None:
    earlier, base = clusters("1", named(18)), clusters("2", named(18, text="@2"))
    held = mix(base, earlier, kept)
    made = found(held, base, earlier)
    assert made is not None
    assert made.versions() == held.versions()
    assert (made.version_info, made.digest) == (held.version_info, held.digest)


def test_some_of_many_changed_names_are_as_they_were_beside_what_lingers() -> None:
    """What was rejected is as it was accepted, and what a push removed lingers, however many names that are."""
    first = clusters("1", {**named(40, "gone"), **named(10)})
    second = clusters("2", {**named(40, "later"), **named(10)})
    base = clusters("3", named(10, text="@2"))
    lingering = mix(mix(base, first, first.resources.keys() - base.resources.keys()), second, named(40, "later"))
    held = mix(base, lingering, lingering.resources.keys() - base.resources.keys())
    held = mix(base, mix(held, first, ["x9"]), [*held.resources.keys() - base.resources.keys(), "x9"])
    assert len(held) == 90
    made = found(held, base, second, first)
    assert made is not None
    assert made.versions() == held.versions()


def test_new_names_may_be_missing() -> None:
    earlier, base = clusters("1", named(2)), clusters("2", named(20))
    held = mix(base, earlier, ["x3", "x12", "x19"])
    made = found(held, base, earlier)
    assert made is not None
    assert made.versions() == held.versions()


def test_a_hash_that_no_combination_has_finds_nothing() -> None:
    earlier, base = clusters("1", named(200)), clusters("2", named(200, text="@2"))
    strange = mix(base, clusters("0", named(200, text="@strange")), ["x7"])
    assert found(strange, base, earlier) is None
    assert mixture_of(base, (base, earlier), "no hash!", Diffs().change) is None

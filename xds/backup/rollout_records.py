"""The rollouts of groups in a backup that is restored, and in a store that is examined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from time import time

from xds.model.errors import ValidationError
from xds.push.rollouts import KIND
from xds.rollouts.rollout import Rollout, RolloutState, decode, encode
from xds.store.records import DOCUMENTS, REVISIONS, Record

RESTORED = "restored from a backup"


def paused(records: Iterable[Record]) -> Iterator[Record]:
    """Records as they are restored: a rollout that was going on is paused, since its nodes may be others now."""
    for record in records:
        rollout = _rollout(record)
        if isinstance(rollout, Rollout) and rollout.is_open:
            stopped = replace(rollout, state=RolloutState.PAUSED, since_s=time(), reason=RESTORED, connected_n=0)
            kind, group, is_live, _, revision = record.values
            yield record._replace(values=(kind, group, is_live, encode(stopped), revision))
        else:
            yield record


def find_damages(records: Iterable[Record]) -> list[str]:
    """What is damaged of the rollouts in these records: their documents, or the bases that they serve."""
    damages: list[str] = []
    with_content = set[tuple[str, int]]()
    for record in records:  # revisions come before documents
        if record.kind == REVISIONS.name:
            values = dict(zip(REVISIONS.fields, record.values, strict=True))
            if values["content"]:
                with_content.add((values["group"], values["revision"]))
        rollout = _rollout(record)
        if isinstance(rollout, ValidationError):
            damages.append(f"the rollout of group {record.values[1]}: damaged")
        elif rollout is not None and rollout.is_open and (rollout.group, rollout.base) not in with_content:
            damages.append(f"the rollout of group {rollout.group}: the content of its base, {rollout.base}, is missing")
    return damages


def _rollout(record: Record) -> Rollout | ValidationError | None:
    """The rollout in a record, or what is wrong with it; None for another record."""
    if record.kind != DOCUMENTS.name:
        return None
    kind, group, is_live, body, _ = record.values
    if kind != KIND or not is_live:
        return None
    try:
        return decode(group, body)
    except ValidationError as error:
        return error

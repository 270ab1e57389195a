"""Settings that earlier releases had elsewhere: they are accepted, so that an existing configuration starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MOVED: Mapping[str, str] = {"server.order": "order.enabled"}
"""Old place to new place, as ``section.name``."""


def move_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the values of moved settings in their new places. A value in a new place wins."""
    moved = dict(document)
    for old, new in MOVED.items():
        old_section, old_name = old.split(".")
        new_section, new_name = new.split(".")
        section = moved.get(old_section)
        if not isinstance(section, Mapping) or old_name not in section:
            continue
        moved[old_section] = {name: value for name, value in section.items() if name != old_name}
        target = moved.get(new_section)
        if target is None or isinstance(target, Mapping):  # else the settings' own check names the error
            moved[new_section] = {new_name: section[old_name], **(target or {})}
    return moved


def moved_names(document: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each moved setting that the document has in its old place."""
    for old, new in MOVED.items():
        section, name = old.split(".")
        if isinstance(document.get(section), Mapping) and name in document[section]:
            yield f"{old}: this setting is now {new!r}; the old name still works"

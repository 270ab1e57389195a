"""The names that groups can have."""

from __future__ import annotations

import re

from xds.model.errors import NotFoundError, ValidationError, Violation

GROUP_NAME_LIMIT = 256
# Characters that need no escaping in paths, labels and shells. A slash is allowed since node ids may contain one.
# Groups that are older than this rule keep their names.
_SEGMENT = r"(?!\.+(?:/|\Z))[A-Za-z0-9._~:@+=-]+"
GROUP_NAME = re.compile(rf"(?=[A-Za-z0-9_]){_SEGMENT}(?:/{_SEGMENT})*")
# The line of the store that keeps config entries. It is not a group, and no new group may have a name with this
# character.
CONFIG_ENTRIES_LINE = "%config-entries"


def check_group_name(group: str) -> None:
    """Raises ``ValidationError`` for a name that is too long, not printable, or that of a line that is not a group."""
    if group == CONFIG_ENTRIES_LINE:
        detail = "this name is reserved for config entries, which are not a group"
        raise ValidationError([Violation("invalid_group", detail, resource=group)])
    if not 0 < len(group) <= GROUP_NAME_LIMIT or not group.isprintable():
        detail = f"the name of a group has 1 to {GROUP_NAME_LIMIT} printable characters"
        raise ValidationError([Violation("invalid_group", detail, resource=group[:GROUP_NAME_LIMIT])])


def check_is_group(group: str) -> None:
    """Raises ``NotFoundError`` for the line of config entries, which is not a group."""
    if group == CONFIG_ENTRIES_LINE:
        raise NotFoundError(f"no such group: {group!r}")


def check_new_group_name(group: str) -> None:
    """Raises ``ValidationError`` for a name that a new group cannot have. Existing groups keep their names."""
    if len(group) > GROUP_NAME_LIMIT or GROUP_NAME.fullmatch(group) is None:
        detail = (
            f"the name of a new group has 1 to {GROUP_NAME_LIMIT} of A-Z a-z 0-9 . _ ~ : @ + = - and / between them"
        )
        hint = "it begins with a letter, a digit or _; use a selector for nodes with other ids or clusters"
        raise ValidationError([Violation("invalid_group", detail, resource=group[:GROUP_NAME_LIMIT], hint=hint)])

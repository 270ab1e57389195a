"""Who did something: in parentheses what the client said of itself, which nobody has checked."""

from __future__ import annotations

from typing import Any


def who(item: dict[str, Any]) -> str:
    """``team-edge (root)``: the authenticated name, and the claimed one where it is another."""
    actor, author = item.get("actor", ""), item.get("author", "")
    claimed = f"({author})" if author and author != actor else ""
    return " ".join(filter(None, (actor, claimed)))

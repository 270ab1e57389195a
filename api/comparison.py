"""What differs between two revisions of a group: names, and the resources before and after."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import Query, Request
from fastapi.responses import Response
from typing_extensions import TypedDict

from api.answers import answer_json, answer_yaml
from api.content_types import accepts_yaml
from api.grants import ShowSecrets
from api.groups import shown
from api.paging import Page, Paging
from api.revisions import REVISION_LIMIT, Revision
from api.routing import api_router
from api.scope import Segment
from api.services import Here
from api.shapes import ChangeItem, change_items
from xds.control.group_content import Key, type_label
from xds.control.push import by_type_label
from xds.control.revision_history import ComparedResources
from xds.control.threads import run_sized

Json = dict[str, Any]

_SIZE_GUESS_BYTES = 100  # of a key: sorting more than some hundred is not for the event loop

router = api_router("revisions", "/groups/{group}")


class DifferenceItem(TypedDict):
    """``change`` is ``added``, ``changed`` or ``removed``; null is on the side that does not have the resource.

    Where the difference is in what is redacted, both sides look the same.
    """

    type: str
    name: str
    change: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


# Written so because one of its members is a word of the language.
DifferenceAnswer = TypedDict(
    "DifferenceAnswer",
    {
        "group": str,
        "from": int,
        "to": int,
        "changes": dict[str, ChangeItem],
        "resources": NotRequired[list[DifferenceItem]],
        "next_page_token": NotRequired[str],
    },
)


@router.get("/revisions/{revision}/diff", response_model=DifferenceAnswer)
async def get_difference(
    here: Here,
    request: Request,
    paging: Paging,
    group: Segment,
    revision: Revision,
    show_secrets: ShowSecrets,
    base: Annotated[
        int | None,
        Query(alias="from", ge=0, le=REVISION_LIMIT, description="By default the revision before; 0: nothing"),
    ] = None,
    contents: Annotated[bool, Query(description="The resources themselves, too, page by page")] = True,
) -> Response:
    """What became of the group from one revision to another; one that deleted it holds nothing."""
    found = await here.publisher.compare(group, revision - 1 if base is None else base, revision)
    document: Json = {
        "group": group,
        "from": found.old,
        "to": found.new,
        "changes": change_items(by_type_label(found.changes)),
    }
    if contents:
        touched = found.touched()
        page = await run_sized(lambda: _page(paging, touched), bytes=len(touched) * _SIZE_GUESS_BYTES)
        keys: list[Key] = page.pop("items")
        sides = await here.publisher.sides(found, keys)
        size = sum(len(resource.body) for side in (sides.before, sides.after) for resource in side.values())
        document["resources"] = await run_sized(lambda: _items(keys, sides, show_secrets), bytes=size)
        document.update(page)
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document)


def _page(paging: Page, touched: list[Key]) -> Json:
    places = {_place(key): key for key in touched}
    behind = sorted(place for place in places if place > paging.after)
    return paging.of(behind, str, lambda place: places[place])


def _place(key: Key) -> str:
    return f"{type_label(key[0])} {key[1]}"


def _items(keys: list[Key], sides: ComparedResources, show_secrets: bool) -> list[DifferenceItem]:
    return [_item(key, sides, show_secrets) for key in keys]


def _item(key: Key, sides: ComparedResources, show_secrets: bool) -> DifferenceItem:
    before, after = sides.before.get(key), sides.after.get(key)
    return {
        "type": type_label(key[0]),
        "name": key[1],
        "change": "added" if before is None else "removed" if after is None else "changed",
        "before": shown(before, show_secrets) if before is not None else None,
        "after": shown(after, show_secrets) if after is not None else None,
    }

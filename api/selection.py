"""Nodes chosen by a selector, in the language of the groups' selectors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query

from api.problem import RequestError
from xds.filter.expression import EvaluationError, FilterSyntaxError
from xds.filter.filter import Filter, compile_filter
from xds.filter.values import NODE_SHAPE, node_record
from xds.model.node import Node

SELECTOR_LIMIT = 4096

Selects = Callable[[Node | None], bool]


async def node_selector(
    selector: Annotated[
        str, Query(max_length=SELECTOR_LIMIT, description='Such as `node.cluster == "edge"`; empty: all')
    ] = "",
) -> Selects:
    """Says whether a node is meant; one that the selector cannot be answered for is not. Raises ``RequestError``."""
    if not selector.strip():
        return _everything
    try:
        chosen = await asyncio.to_thread(_compiled, selector)
    except (FilterSyntaxError, EvaluationError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"selector, {error}") from None

    def selects(node: Node | None) -> bool:
        try:
            return node is not None and chosen.matches(node_record(node))
        except EvaluationError:
            return False

    return selects


def _everything(node: Node | None) -> bool:
    return True


def _compiled(selector: str) -> Filter:
    chosen = compile_filter(selector)
    chosen.check(NODE_SHAPE)
    return chosen


Selector = Annotated[Selects, Depends(node_selector)]

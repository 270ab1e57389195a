"""The calls about the load that clients report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds.admin import operations
from xds.calls.call import ApiCall, ask, ask_items, flags

if TYPE_CHECKING:
    from xds.admin.models.load import LoadDetail, LoadLine, LoadSummary


def load(*, window_s: float | None = None) -> ApiCall[tuple[LoadSummary, ...]]:
    """The load of all clusters, averaged over the last ``window_s``."""
    return ask_items(operations.LIST_LOAD, query=_window(window_s))


def cluster_load(
    cluster: str, *, by: str = "", service_name: str = "", window_s: float | None = None
) -> ApiCall[LoadDetail]:
    """The load of one cluster, ``by`` ``locality``, ``node`` or ``endpoint``.

    If it has more rows than an answer, ``next_page_token`` is in it.
    """
    query = {**flags(by=by, service_name=service_name), **_window(window_s)}
    return ask(operations.GET_LOAD, cluster, query=query)


def load_series(
    cluster: str, *, by: str = "", step_s: float | None = None, window_s: float | None = None
) -> ApiCall[tuple[LoadLine, ...]]:
    """The load of one cluster over time, a value for each ``step_s``."""
    query = {**flags(by=by, step=_number(step_s)), **_window(window_s)}
    return ask_items(operations.GET_LOAD_SERIES, cluster, query=query)


def _window(window_s: float | None) -> dict[str, str]:
    return flags(window=_number(window_s))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"

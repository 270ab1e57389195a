"""The fixtures of this feature: a server for Linkerd proxies, a client of it, and a server for the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import remote
from tests.support.linkerd_client import LinkerdClient
from tests.support.linkerd_site import LinkerdSite

__all__ = ["remote"]


@pytest.fixture
def site() -> Iterator[LinkerdSite]:
    made = LinkerdSite()
    yield made
    made.close()


@pytest.fixture
def client(site: LinkerdSite) -> LinkerdClient:
    return site.client()

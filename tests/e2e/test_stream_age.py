"""No request is lost while the server closes streams by their age, amid swaps."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_site import SwapSites
from tests.support.background import Background
from tests.support.bootstrap import Variant, in_variants
from tests.support.process import wait_until

AGE = {"XDS_SERVER__MAX_STREAM_AGE_S": "2"}
SWAPS = 3


@in_variants(Variant.ADS_DELTA)
def test_streams_closed_by_age_lose_no_request(
    variant: Variant, tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = SwapSites(tmp_path, background, running).open(kinds.routes_move, variant, environment=AGE)
    opened = set[int]()

    def has_new_streams() -> bool:
        ids = {stream["id"] for stream in site.streams()}
        is_new = bool(ids) and ids.isdisjoint(opened)
        opened.update(ids if is_new else ())
        return is_new

    for _ in range(SWAPS):
        wait_until(has_new_streams, "Envoy's streams are closed and opened again")
        site.swap()
    site.wait_synced()
    site.end()

"""Names in several cases beside a real Consul: the same requests, and its recorded answers.

To record anew, with Go: ``python -m tests.mesh.routes.test_consul_names_recorded``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.admin.conftest import Api
from tests.mesh.routes.test_consul_recorded import CONFIG_ENTRIES
from tests.mesh.routes.test_consul_services_recorded import SERVICES
from tests.support.consul_names import ENTRY_NAMES_EXCHANGE, SERVICE_NAMES_EXCHANGE
from tests.support.consul_recording import GO_TIMEOUT_S, RecordedExchange

ENTRY_NAMES = RecordedExchange(
    "consul-entry-names-1.12.9.json",
    ENTRY_NAMES_EXCHANGE,
    meant={},
    unequal=CONFIG_ENTRIES.unequal,
    moves=CONFIG_ENTRIES.moves,
)
SERVICE_NAMES = RecordedExchange(
    "consul-service-names-1.12.9.json",
    SERVICE_NAMES_EXCHANGE,
    meant={},
    unequal=SERVICES.unequal,
    moves=SERVICES.moves,
)
EXCHANGES = pytest.mark.parametrize("exchange", [ENTRY_NAMES, SERVICE_NAMES], ids=["config entries", "services"])


@EXCHANGES
async def test_names_in_another_case_are_those_of_consul(api: Api, exchange: RecordedExchange) -> None:
    exchange.check(exchange.recorded(), await exchange.play(api.client))


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
@EXCHANGES
async def test_recorded_answers_of_consul_equal_ours(api: Api, exchange: RecordedExchange, tmp_path: Path) -> None:
    exchange.check(await exchange.ask_consul(tmp_path), await exchange.play(api.client))


if __name__ == "__main__":
    ENTRY_NAMES.record()
    SERVICE_NAMES.record()

"""Commands in the values of headers: a real Envoy refuses those that we refuse, and takes those that we take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.judging_envoy import JudgingEnvoy
from xds.codec.format_commands import NEEDING, NEEDING_ONLY, OF_HEADERS, OPTIONAL, PLAIN, command_problem
from xds.model.resource_type import ROUTE

CLUSTER = "c"
FORMS = ("", "()", "(x)", ":3", "(x):3", "():3")
NAMES = sorted(PLAIN | OPTIONAL | OF_HEADERS | NEEDING | NEEDING_ONLY)
TEXTS = (
    *("%", "%%", "%%%", "% %", "100% sure", "a%%b", "50%%", "%a%", "%req(x)%", "%1%", "%_%", "%NONSENSE%", "%USER(x)%"),
    *("%REQ(x)", "%REQ(x", "%REQ (x)%", "%REQ(x)%%", "%%REQ(x)%", "%REQ(x)%y%REQ(z)%", "%REQ(a(b)c)%", "%REQ(x):y%"),
    *("%REQ(x?y)%", "%REQ(:path)%", "%REQ(x?:path)%", "%REQ(x:y)%", "%REQ(x y)%", "%REQ(x?y?z)%", "%REQ(x-y_z.1)%"),
    *(
        "%START_TIME(%Y/%m)%",
        "%DYNAMIC_METADATA(a:b:c)%",
        "%FILTER_STATE(x)%",
        "%ENVIRONMENT(HOME)%",
        "%QUERY_PARAM(x)%",
    ),
    *("%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%", "%PATH%", "%PATH(NQ):5%", "%QUERY_PARAMS(ORIG)%", "%GRPC_STATUS%"),
    *("%REQ(x):99999999999%", "%REQ(\u00e9)%", "%REQ(x/y)%", "%RESP(x)%", "%TRAILER(x):0%", "%REQ(x?)%", "%REQ(?x)%"),
)
NOT_LOOKED_AT = ("%CEL(", "%TYPED_CEL(", "%COMMON_DURATION(x")  # their parameters are a language of their own


def values() -> Iterator[str]:
    yield from TEXTS
    yield from (f"%{name}{form}%" for name in NAMES for form in FORMS)


def route(value: str) -> dict[str, Any]:
    action = {"match": {"prefix": "/"}, "route": {"cluster": CLUSTER}}
    added = {"request_headers_to_add": [{"header": {"key": "x", "value": value}}]}
    host = {"name": "all", "domains": ["*"], "routes": [{**action, **added}]}
    return {"@type": ROUTE, "name": "probe", "virtual_hosts": [host]}


@pytest.mark.timeout(300)
def test_envoy_rejects_header_commands_that_we_refuse(tmp_path: Path) -> None:
    differ = []
    with JudgingEnvoy(tmp_path, [CLUSTER]) as envoy:
        for value in values():
            ours, envoys = command_problem(value), envoy.verdict("routes", route(value))
            if bool(ours) != bool(envoys) and not value.startswith(NOT_LOOKED_AT):
                differ.append((value, ours, envoys))
    assert differ == []

"""The bench of attacks: it measures what it says, and the page tells what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import grpc
import pytest

from bench import attacks
from bench.sink import running_sink
from bench.suite.results import Results
from tests.attack.anonymous import ANONYMOUS_ATTACKS
from tests.attack.attacks import ATTACKS, BATCH, FLOODS, LRS, MIB, batches
from tests.attack.costly_work import validation
from tests.attack.raw_http import ask
from tests.attack.raw_http2 import RawHttp2
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import REPOSITORY
from xds.model.resource_type import CLUSTER

PAGE = REPOSITORY / "docs" / "performance.md"
# Those that no test of tests/attack makes, and one of each other kind: the rest are made there beside a good client.
MEASURED = ["continuation", "regexes", *ANONYMOUS_ATTACKS]


@pytest.mark.soak
@pytest.mark.parametrize("name", MEASURED)
def test_an_attack_is_measured_beside_a_control_run(tmp_path: Path, name: str) -> None:
    """The good client is served in both, and what the attacker held comes back."""
    cell = attacks.measure(name, 0.5, tmp_path)
    assert cell.values(attacks.CONTROL, "answer_s") and cell.values(attacks.BESIDE, "answer_s")
    (cores,), (before,), (peak,) = (cell.values(attacks.SERVER, key) for key in ("cores", "before_mb", "peak_mb"))
    assert cores > 0 and peak >= before * 0.9 > 10
    assert cell.values(attacks.SERVER, "descriptors_after") <= cell.values(attacks.SERVER, "descriptors_before")
    told = attacks.row(cell)
    assert (told[0], len(told)) == (name, len(attacks.HEADER))
    assert attacks.MISSING not in told


def test_a_sink_sends_the_answers_that_attackers_wait_for() -> None:
    with running_sink() as ports, GrpcStream(ports.grpc) as stream, GrpcStream(ports.grpc, LRS) as reports:
        for served in (stream, reports):
            served.send(sotw(CLUSTER)).receive()
            served.send(sotw(CLUSTER, ["x" * MIB])).receive()
            assert served.send(b"\xff").refusal()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        with GrpcStream(ports.grpc) as large:
            assert large.send(sotw(CLUSTER, ["x" * MIB])).refusal()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [ask(ports.http, validation(bytes(size))) for size in (1, MIB)] == [200, 200]
        with RawHttp2(ports.grpc) as raw:
            assert raw.flood(batches(FLOODS["PING"], 5 * BATCH)) == 5


def test_the_page_has_the_figures_that_were_measured() -> None:
    measured = Results.load(PAGE.with_suffix("") / attacks.RESULTS)
    assert _keys(ATTACKS) <= measured.cells.keys() <= _keys(attacks.ATTACKS)
    told = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for cell in measured.cells.values():
        name, *rest = attacks.row(cell)
        assert f"| `{name}` | {' | '.join(rest)} |" in told


def _keys(names: Iterable[str]) -> set[str]:
    return {f"attacks/{name}" for name in names}

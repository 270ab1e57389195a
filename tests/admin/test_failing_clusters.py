"""Which clusters fail, and since when."""

from __future__ import annotations

import pytest

from tests.admin.conftest import Api
from xds.admin.failing_clusters import FailureStart, failing_of, failing_steps, is_outage, push_before
from xds.lrs.figures import ChartPoint, ClusterFigures, Figures


def figures(cluster: str, window_s: float, failed: float, successes: float = 0.0) -> ClusterFigures:
    return ClusterFigures(cluster, "", 0.0, Figures(window_s, successes, failed))


@pytest.mark.parametrize(
    ("ratios", "failing"),
    [("....", 0), ("..xx", 2), ("x.xx", 2), ("xxxx", 4), (".x x ", 2), ("x.", 0), ("", 0)],
)
def test_failing_steps_are_those_of_the_lasting_failure(ratios: str, failing: int) -> None:
    """``x``: a step in which most requests fail; a blank one has none."""
    points = [ChartPoint(0.0, float(step == "."), float(step == "x"), float(step != " ")) for step in ratios]
    assert len(failing_steps(points)) == failing


def test_the_worst_window_of_a_cluster_counts() -> None:
    minute = [figures("down", 60.0, 100, 500), figures("half", 60.0, 60, 40), figures("few", 60.0, 15)]
    seconds = [figures("down", 10.0, 100), figures("half", 10.0, 10, 90), figures("few", 10.0, 5)]
    down, half = failing_of((seconds, minute))
    assert (down.cluster, down.window_s, is_outage(down)) == ("down", 10.0, True)
    assert (half.cluster, half.window_s, is_outage(half)) == ("half", 60.0, False)


async def test_a_push_after_a_failure_began_is_not_blamed(api: Api) -> None:
    for port in (80, 81):
        cluster = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": f"c{port}"}
        answer = await api.client.put("/api/v1/groups/edge/snapshot", json={"resources": [cluster]})
        assert answer.status_code == 200, answer.text
    deps = api.services
    began = (await deps.publisher.history.lines("edge", None, 1))[0].meta.time_s
    found = await push_before(deps, "edge", FailureStart(began, 1.0))
    assert found is not None and found.revision == 2, "within a report"
    assert await push_before(deps, "edge", FailureStart(began - 60, 5.0)) is None
    found = await push_before(deps, "edge", None)
    assert found is not None and found.revision == 2
    assert await push_before(deps, "nobody", None) is None

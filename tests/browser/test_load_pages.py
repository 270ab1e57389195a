"""The pages of load and of services: what is drawn, what the table under it says, and the chain of a service.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.looks import LOOKS, check_keys, check_way_back, check_whole
from tests.browser.pictures import take_picture
from tests.browser.simulated import FollowingNode, ReportedLoad
from tests.browser.world import INJECTED, identity, select
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

Json = dict[str, Any]
GROUP, CLUSTER = "edge", "web"
ZONES = {"a": (100, 1), "b": (40, 8), "c": (20, 0)}
POLICY = {"capacity": {"rates": [{"per_endpoint_rps": 60}]}, "interval_s": 1, "dwell_s": 0}
ENTRIES = Path(__file__).resolve().parents[2] / "examples" / "config-entries" / "web.yaml"
UNKNOWN = " (instances not known here)"
INSTANCES = {"web-1": "v1", "web-2": "v1", "web-3": "v2"}
# How many points of a canvas are painted, by color.
COLORS = """(selector) => {
  const canvas = document.querySelector(selector);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = {};
  for (let at = 0; at < data.length; at += 4) {
    const color = `rgb(${data.slice(at, at + 3).join(", ")})`;
    if (data[at + 3] === 255) found[color] = (found[color] ?? 0) + 1;
  }
  return found;
}"""
# Each line of a chain with its depth.
LINES = """[...document.querySelectorAll('.chain li')].map(item => {
  let depth = 0;
  for (let at = item; at; at = at.parentElement.closest('.chain li')) depth += 1;
  return [depth, item.innerText.split('\\n')[0]];
})"""
LEGEND = (
    "[...document.querySelectorAll('[data-chart=requests] .legend li')]"
    ".map(item => [item.innerText, getComputedStyle(item).borderLeftColor])"
)


@pytest.fixture(scope="module")
def server(running: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    flags = ["--store", "memory", "--lrs-interval", "1s"]
    server = running.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), flags))
    select(server, GROUP)
    localities = [
        {**r.zone_endpoints(8000 + number), "locality": {"region": "eu", "zone": zone}}
        for number, zone in enumerate(ZONES)
    ]
    assigned = {"@type": r.ENDPOINT_TYPE, "cluster_name": CLUSTER, "endpoints": localities}
    server.push(GROUP, [r.steered_cluster(CLUSTER), assigned])
    running.enter_context(FollowingNode(server.grpc_port, identity("edge-1", GROUP)))
    running.enter_context(ReportedLoad(server.grpc_port, "edge-1", GROUP, CLUSTER, ZONES))
    many = {f"z{number:02}": (20 - number, 0) for number in range(15)}
    running.enter_context(ReportedLoad(server.grpc_port, "edge-2", GROUP, INJECTED, many))
    policy = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/{CLUSTER}", json=POLICY)
    assert policy.is_success, policy.text
    for entry in yaml.safe_load_all(ENTRIES.read_text()):
        assert server.request("POST", "/api/v1/config-entries", json=entry).is_success
    for number, (name, version) in enumerate(INSTANCES.items()):
        register(
            server, {"ID": name, "Name": "web", "Address": f"10.0.0.{number}", "Port": 80, "Meta": {"version": version}}
        )
    wait_until(lambda: server.get(f"/groups/{GROUP}/assignments/{CLUSTER}")["decided"], "a decision")
    return server


def register(server: ServerProcess, service: Json, status: str = "passing") -> None:
    check = {"TTL": "300s", "Status": status}
    answer = server.request("PUT", "/v1/agent/service/register", json={**service, "Check": check})
    assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def window(running: ExitStack, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> BrowserPage:
    url = f"http://127.0.0.1:{server.http_port}/"
    return running.enter_context(BrowserPage(url, tmp_path_factory.mktemp("browser")))


@pytest.fixture
def page(window: BrowserPage) -> BrowserPage:
    window.messages.clear()
    window.failures.clear()
    window.look("light", 1280)
    return window


VIEWS = {
    "/ui/load": "requests per second",
    f"/ui/load/{CLUSTER}": "Traffic assignment",
    f"/ui/load/{CLUSTER}?window=1h": "Traffic assignment",
    "/ui/load/none": "No client has reported load",
    "/ui/services": "3/3 passing",
    "/ui/services/web": "instance 10.0.0.1:80",
    "/ui/services/admin": "No source has shown an instance",
}


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("path", VIEWS)
def test_a_page_is_whole(page: BrowserPage, path: str, scheme: str, width: int) -> None:
    check_whole(page, path, VIEWS[path], scheme, width)


@pytest.mark.parametrize("path", ["/ui/load", "/ui/services"])
def test_a_list_is_as_in_its_picture(page: BrowserPage, path: str) -> None:
    page.go(path)
    page.wait_for(VIEWS[path], "main")
    take_picture(page, f"{path.rpartition('/')[2]}-list")


@pytest.mark.parametrize("path", VIEWS)
def test_keys_reach_every_control(page: BrowserPage, path: str) -> None:
    check_keys(page, path, VIEWS[path])


@pytest.mark.parametrize("path", VIEWS)
def test_the_way_back_and_a_reload_show_the_same(page: BrowserPage, path: str) -> None:
    check_way_back(page, path, VIEWS[path])


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_the_charts_and_their_table_are_whole(page: BrowserPage, scheme: str, width: int) -> None:
    page.look(scheme, width)
    page.go(f"/ui/load/{CLUSTER}")
    wait_until(lambda: page.evaluate("document.querySelectorAll('[data-chart] canvas').length") == 2, "the charts")
    page.evaluate("document.querySelector('details').open = true")
    assert audit(page) == []


# -- load --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_load_is_stacked_in_the_colors_of_its_legend(page: BrowserPage, server: ServerProcess, scheme: str) -> None:
    page.look(scheme, 1280)
    page.go(f"/ui/load/{CLUSTER}")
    wait_until(lambda: len(page.evaluate(LEGEND)) == 3, "the chart", detail=page.text)
    names = dict(page.evaluate(LEGEND))
    assert list(names) == ["eu/a", "eu/b", "eu/c"]
    painted = page.evaluate(f"({COLORS})('[data-chart=requests] canvas')")
    areas = [painted[color] for color in names.values()]
    assert areas[0] > 1.5 * areas[1] > 1.5 * areas[2] > 0
    errors = page.evaluate(f"({COLORS})('[data-chart=errors] canvas')")
    assert errors[names["eu/b"]] > errors[names["eu/a"]]
    if scheme == "light":
        take_picture(page, "load")


def test_the_chart_takes_the_colors_of_the_other_scheme(page: BrowserPage) -> None:
    page.go(f"/ui/load/{CLUSTER}")
    wait_until(lambda: len(page.evaluate(LEGEND)) == 3, "the chart")
    before = page.evaluate(LEGEND)[0][1]
    page.look("dark", 1280)
    after = page.evaluate(LEGEND)[0][1]
    assert after != before
    painted = f"({COLORS})('[data-chart=requests] canvas')"
    wait_until(lambda: after in page.evaluate(painted), "the chart is drawn anew")


def test_the_table_under_the_chart_has_its_figures(page: BrowserPage) -> None:
    page.go(f"/ui/load/{CLUSTER}")
    page.wait_for("The figures as a table", "main")
    page.evaluate("document.querySelector('details').open = true")
    rows = page.evaluate(
        "[...document.querySelectorAll('details tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert 1 < len(rows) <= 120
    assert any(row[1:] == ["100", "1", "40", "8", "20", "0"] for row in rows), rows
    heads = page.evaluate("[...document.querySelectorAll('details thead th')].map(head => head.innerText)")
    assert heads[:3] == ["time (UTC)", "eu/a: requests/s", "eu/a: errors/s"]


def test_wanted_and_real_shares_stand_side_by_side(page: BrowserPage, server: ServerProcess) -> None:
    page.go(f"/ui/load/{CLUSTER}")
    page.wait_for("wanted share", "main")
    page.wait_for("62.5 %", "main")  # 100 of 160 requests go to zone a

    def shows_standing() -> bool:
        (source,) = server.get(f"/groups/{GROUP}/assignments/{CLUSTER}")["sources"]
        return source["source"]["zone"] == "a" and source["standing"] in page.text("main")

    wait_until(shows_standing, "the standing", detail=lambda: page.text("main"))


def test_at_most_twelve_lines_are_drawn(page: BrowserPage) -> None:
    page.go("/ui/load")
    page.wait_for(INJECTED, "main")
    page.evaluate(f"[...document.querySelectorAll('main a')].find(each => each.innerText == {INJECTED!r}).click()")
    wait_until(lambda: page.evaluate(LEGEND), "the chart", detail=page.text)
    names = [name for name, _ in page.evaluate(LEGEND)]
    assert len(names) == 12
    assert names[-1] == "4 others"
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.messages == []


# -- services ----------------------------------------------------------------------------------------------------------


def test_a_chain_is_a_nested_list_down_to_its_instances(page: BrowserPage) -> None:
    page.go("/ui/services")
    page.wait_for("3/3 passing", "main")
    page.evaluate("[...document.querySelectorAll('main a')].find(each => each.innerText == 'web').click()")
    page.wait_for("router web.default.default", ".chain")
    ways = page.evaluate(LINES)
    assert ways == [
        [1, "router web.default.default"],
        [2, "route 1, path begins with /admin: timeout 30s"],
        [3, "resolver admin.default.default.dc1"],
        [4, "target admin.default.default.dc1 (no instance)"],
        [2, "route 2, any request"],
        [3, "splitter web.default.default"],
        [4, "95 %: resolver v1.web.default.default.dc1"],
        [5, "target v1.web.default.default.dc1: subset v1 (Service.Meta.version == v1)"],
        [6, "instance 10.0.0.0:80 ✓ passing"],
        [6, "instance 10.0.0.1:80 ✓ passing"],
        [5, f"failover 1, v1.web.default.default.dc2: subset v1 (Service.Meta.version == v1){UNKNOWN}"],
        [4, "5 %: resolver v2.web.default.default.dc1"],
        [5, "target v2.web.default.default.dc1: subset v2 (Service.Meta.version == v2)"],
        [6, "instance 10.0.0.2:80 ✓ passing"],
        [5, f"failover 1, v2.web.default.default.dc2: subset v2 (Service.Meta.version == v2){UNKNOWN}"],
    ]
    take_picture(page, "service")
    page.evaluate("[...document.querySelectorAll('.chain a')].find(each => each.innerText.startsWith('admin')).click()")
    page.wait_for("Service admin", "h1")
    page.wait_for("No source has shown an instance", "main")
    page.evaluate("history.back()")
    page.wait_for("router web.default.default", ".chain")


def test_the_chain_and_the_table_say_the_same_of_each_instance(page: BrowserPage, server: ServerProcess) -> None:
    signs = {"passing": "✓ passing", "warning": "! warning", "critical": "✗ critical"}
    for number, status in enumerate(signs):
        register(server, {"ID": status, "Name": "sick", "Address": f"10.1.0.{number}", "Port": 80}, status)
    said = {f"10.1.0.{number}:80": word for number, word in enumerate(signs.values())}
    page.go("/ui/services/sick")
    page.wait_for("10.1.0.2:80", ".chain")
    lines = [line for depth, line in page.evaluate(LINES) if line.startswith("instance ")]
    assert lines == [f"instance {address} {word}" for address, word in said.items()]
    rows = page.evaluate("[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(e => e.innerText))")
    assert {address: word for address, word, *_ in rows} == said
    passing = {"Kind": "service-resolver", "Name": "sick", "DefaultSubset": "well"}
    subsets = {"well": {"Filter": "Service.ID != warning", "OnlyPassing": True}}
    assert server.request("POST", "/api/v1/config-entries", json={**passing, "Subsets": subsets}).is_success
    page.wait_for("only passing instances", ".chain")
    lines = [line for depth, line in page.evaluate(LINES) if line.startswith("instance ")]
    assert lines == ["instance 10.1.0.0:80 ✓ passing"]
    assert page.failures == []


def test_a_change_of_an_entry_is_seen_at_once(page: BrowserPage, server: ServerProcess) -> None:
    page.go("/ui/services/web")
    page.wait_for("95 %", ".chain")
    page.wait_for("live", "#live")
    splits = [{"Weight": 60, "ServiceSubset": "v1"}, {"Weight": 40, "ServiceSubset": "v2"}]
    splitter = {"Kind": "service-splitter", "Name": "web", "Splits": splits}
    assert server.request("POST", "/api/v1/config-entries", json=splitter).is_success
    page.wait_for("60 %", ".chain")


def test_a_text_of_an_entry_is_text(page: BrowserPage, server: ServerProcess) -> None:
    match = {"HTTP": {"Header": [{"Name": "x-evil", "Exact": INJECTED}]}}
    router = {"Kind": "service-router", "Name": "evil", "Routes": [{"Match": match}]}
    assert server.request("POST", "/api/v1/config-entries", json=router).is_success
    page.go("/ui/services/evil")
    page.wait_for(f"route 1, header x-evil is {INJECTED}", ".chain")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.messages == []

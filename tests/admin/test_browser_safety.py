"""Which requests count as those of a page, and which names as those of the server."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from tests.admin.conftest import Api
from xds.access.tokens import EVERYTHING, Tokens
from xds.admin.browser_rules import ANY, BrowserRules
from xds.admin.dependencies import ApiOptions

HERE = "127.0.0.1:18080"
VALIDATE = "/api/v1/validate"


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:18080", True),
        ("10.1.2.3:80", True),
        ("[::1]", True),
        ("[::1]:18080", True),
        ("localhost", True),
        ("LocalHost.:18080", True),
        ("xds.corp.example:18080", True),
        ("XDS.corp.example", True),
        ("a.pods.example", True),
        ("a.b.pods.example", True),
        ("pods.example", False),
        ("evilpods.example", False),
        ("evil.example:18080", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("xds.corp.example.evil", False),
        ("evil@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("127.0.0.1:x", False),
        ("127.0.0.1 evil", False),
        ("[::1", False),
        ("", False),
        (":18080", False),
    ],
)
def test_names_of_the_server(host: str, is_known: bool) -> None:
    assert BrowserRules(("xds.corp.example", "*.pods.example")).is_own_host(host) is is_known


def test_any_host_name_is_allowed_where_set() -> None:
    assert BrowserRules((ANY,)).is_own_host("whatever.example")


class TestAsked:
    async def ask(
        self, api: Api, rules: BrowserRules, headers: Mapping[str, str], method: str = "POST", path: str = VALIDATE
    ) -> httpx.Response:
        guarded = Api(api.plane, ApiOptions(browser=rules))
        body = {"resources": list[str]()} if method == "POST" else None
        return await guarded.client.request(method, path, headers={"host": HERE, **headers}, json=body)

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 200),
            ({"origin": f"http://{HERE}"}, 200),
            ({"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}, 200),
            ({"sec-fetch-site": "none"}, 200),
            ({"host": "localhost", "origin": "http://localhost"}, 200),
            ({"host": "localhost:80", "origin": "http://localhost"}, 200),
            ({"host": "xds.example", "origin": "https://xds.example"}, 200),  # TLS ends before the server
            ({"host": "xds.example", "origin": "https://XDS.example:443"}, 200),
            ({"origin": "http://127.0.0.1:3000"}, 403),
            ({"origin": "http://127.0.0.1"}, 403),
            ({"origin": "http://localhost:18080"}, 403),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": ""}, 403),
            ({"origin": f"http://{HERE}@evil.example"}, 403),
            ({"origin": f"http://{HERE}:x"}, 403),
            ({"origin": "chrome-extension://abc"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"sec-fetch-site": "same-site"}, 403),
            ({"sec-fetch-site": "?"}, 403),
            ({"host": "evil.example"}, 403),
            ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ],
    )
    async def test_changes(self, api: Api, headers: dict[str, str], status: int) -> None:
        assert (await self.ask(api, BrowserRules(("xds.example",)), headers)).status_code == status

    async def test_reading_is_judged_by_name_alone(self, api: Api) -> None:
        rules, path = BrowserRules(()), "/api/v1/groups"
        foreign = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}  # gets no permission to see it
        answer = await self.ask(api, rules, foreign, "GET", path)
        assert (answer.status_code, [name for name in answer.headers if "access-control" in name]) == (200, [])
        for rebound in ("/api/v1/groups", "/metrics", "/nothing", "/api/v1/openapi.json"):
            answer = await self.ask(api, rules, {"host": "evil.example"}, "GET", rebound)
            assert answer.status_code == 403
            assert "set server.http.hosts" in answer.json()["detail"]
        for probe in ("/livez", "/readyz"):
            assert (await self.ask(api, rules, {"host": "pod.example"}, "GET", probe)).status_code == 200

    @pytest.mark.parametrize("path", ["/v3/discovery:clusters", "/v2/discovery:clusters"])
    async def test_rest_xds_goes_by_any_name_but_not_from_a_page(self, api: Api, path: str) -> None:
        rules = BrowserRules(())  # there is no such route here: 404 is let in
        assert (await self.ask(api, rules, {"host": "xds_cluster"}, path=path)).status_code == 404
        for page in ({"origin": f"http://{HERE}"}, {"origin": "null"}, {"sec-fetch-site": "same-origin"}):
            for each in (rules, BrowserRules(trusts_tokens=True)):
                assert (await self.ask(api, each, page, path=path)).status_code == 403

    async def test_tokens_suffice_where_certificates_do_not(self, api: Api) -> None:
        foreign = {"host": "evil.example", "origin": "http://evil.example"}
        assert (await self.ask(api, BrowserRules((), trusts_tokens=True), foreign)).status_code == 200
        both = BrowserRules((), trusts_bearers=True)  # a browser sends its certificate for any page
        assert (await self.ask(api, both, foreign)).status_code == 403
        assert (await self.ask(api, both, {**foreign, "authorization": "Bearer t"})).status_code == 200

    async def test_a_client_without_a_token_learns_no_names(self, api: Api) -> None:
        rules = BrowserRules((), trusts_tokens=True)
        guarded = Api(api.plane, ApiOptions(browser=rules, tokens=Tokens([("0" * 64, EVERYTHING)])))
        answer = await guarded.client.get("/api/v1/groups", headers={"host": "evil.example"})
        assert answer.status_code == 401


@pytest.mark.parametrize("path", [VALIDATE, "/api/v1/transactions", "/api/v1/groups/g/rollback", "/api/v1/explain"])
@pytest.mark.parametrize("media", [{}, {"content-type": "text/plain"}])
async def test_a_body_without_a_type_is_not_read(api: Api, path: str, media: dict[str, str]) -> None:
    answer = await api.client.post(path, content=b'{"to": 1}', headers=media)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["detail"]

"""Requests that write the name of one thing in several cases, as a moved Consul may have them, one after the other."""

from __future__ import annotations

from tests.support.consul_exchange import ConsulRequest, delete, get, post, put

ENTRY_NAMES_EXCHANGE: tuple[ConsulRequest, ...] = (
    # The protocol of one entry counts for a splitter and a router that write the name otherwise
    put({"Kind": "service-defaults", "Name": "Web", "Protocol": "http", "Meta": {"owner": "shop"}}),
    put({"Kind": "service-defaults", "Name": "API", "Protocol": "http"}),
    put({"Kind": "service-splitter", "Name": "WEB", "Splits": [{"Weight": 90}, {"Weight": 10, "Service": "Api"}]}),
    *(get(f"discovery-chain/{name}") for name in ("web", "Web", "WEB")),
    get("config/service-splitter/web"),
    get("config/service-defaults/wEB"),
    put(
        {
            "Kind": "service-splitter",
            "Name": "WEB",
            "Splits": [{"Weight": 90}, {"Weight": 5, "Service": "Api"}, {"Weight": 5, "Service": "wEB"}],
        }
    ),
    *(get(f"discovery-chain/{name}") for name in ("web", "wEB", "WEB")),
    put(
        {
            "Kind": "service-router",
            "Name": "weB",
            "Routes": [
                {"Match": {"HTTP": {"PathPrefix": "/a"}}, "Destination": {"Service": "API"}},
                {"Match": {"HTTP": {"PathPrefix": "/b"}}, "Destination": {"Service": "wEb"}},
            ],
        }
    ),
    *(get(f"discovery-chain/{name}") for name in ("web", "weB")),
    # A resolver, its subsets, and what leads to it
    put(
        {
            "Kind": "service-resolver",
            "Name": "Api",
            "Subsets": {"v1": {"Filter": "Service.Meta.v == 1"}},
            "DefaultSubset": "v1",
            "ConnectTimeout": "3s",
        }
    ),
    get("discovery-chain/web"),
    post("web", {"OverrideConnectTimeout": "7s"}),
    put({"Kind": "service-resolver", "Name": "old", "Redirect": {"Service": "aPI"}}),
    put({"Kind": "service-defaults", "Name": "OLD", "Protocol": "http"}),
    put({"Kind": "service-resolver", "Name": "old", "Redirect": {"Service": "aPI"}}),
    get("discovery-chain/Old"),
    put({"Kind": "service-resolver", "Name": "own", "Redirect": {"Service": "OWN"}}),
    *(get(f"discovery-chain/{name}") for name in ("own", "OWN")),
    put({"Kind": "service-resolver", "Name": "Own", "Failover": {"*": {"Service": "own"}}}),
    *(get(f"discovery-chain/{name}") for name in ("own", "Own")),
    # One entry, whatever the case; the last writing counts, and the creation stays
    get("config/service-defaults/web"),
    put({"Kind": "service-defaults", "Name": "wEB", "Protocol": "http"}, "?cas=0"),
    put({"Kind": "service-defaults", "Name": "wEB", "Protocol": "http", "Meta": {"owner": "shop"}}, "?cas={modify}"),
    get("config/service-defaults/web"),
    put({"Kind": "service-defaults", "Name": "WEB", "Protocol": "http", "Meta": {"owner": "shop"}}, "?cas=1"),
    delete("service-defaults/Web?cas=1"),
    get("config/service-defaults"),
    get("config/service-resolver"),
    get("config/"),
    get("config/service-defaults/WEB?index={index}&wait=20ms"),
    get("config/Service-Defaults/web"),
    put({"Kind": "Service-Defaults", "Name": "web"}),
    put({"Kind": "proxy-defaults", "Name": "Global", "Config": {"protocol": "http"}}),
    put({"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}),
    get("config/proxy-defaults/GLOBAL"),
    # Characters beyond ASCII
    put({"Kind": "service-resolver", "Name": "Äpfel"}),
    get("config/service-resolver/äpfel"),
    put({"Kind": "service-resolver", "Name": "İx"}),
    get("config/service-resolver/ix"),
    put({"Kind": "service-resolver", "Name": "\u039f\u03a3"}),  # two Greek letters
    get("config/service-resolver/\u03bf\u03c3"),
    get("config/service-resolver/\u03bf\u03c2"),  # a final sigma is another letter
    put({"Kind": "service-resolver", "Name": "straẞe"}),
    get("config/service-resolver/straße"),
    # And away, in another case
    delete("service-router/WEB"),
    delete("service-splitter/web"),
    delete("service-resolver/ÄPFEL"),
    get("discovery-chain/web"),
    get("config/service-splitter"),
    get("config/service-router"),
)


def register(id: str, name: str, number: int, **fields: object) -> ConsulRequest:
    """An instance registers itself."""
    body = {"ID": id, "Name": name, "Address": f"10.0.0.{number}", "Port": 8080, **fields}
    return ConsulRequest("PUT", "/v1/agent/service/register", body)


def agent(path: str) -> ConsulRequest:
    """A write at the agent."""
    return ConsulRequest("PUT", f"/v1/agent/{path}")


SERVICE_NAMES_EXCHANGE: tuple[ConsulRequest, ...] = (
    get("health/service/web"),
    register("w1", "web", 1, Tags=["a"], Check={"TTL": "300s", "Status": "passing"}),
    register("w2", "Web", 2, Tags=["b", "c"], Check={"TTL": "300s", "Status": "passing"}),
    register("w3", "WEB", 3, Tags=["A"], Meta={"v": "1"}),
    register("other", "other", 9),
    get("catalog/services"),
    *(get(f"catalog/service/{name}") for name in ("web", "Web", "wEB")),
    get("catalog/service/wEB?tag=a"),
    get("catalog/service/web?filter=ServiceName==Web"),
    get("catalog/service/web?filter=ServiceMeta.v==1"),
    *(get(f"health/service/{name}") for name in ("web", "WEB", "wEB")),
    get("health/service/WEB?passing"),
    get("health/service/web?filter=Service.Service==WEB"),
    get("health/checks/WEB"),
    get("agent/services"),
    get("agent/service/w3"),
    get("agent/service/W3"),
    get("agent/services?filter=Service==Web"),
    # A blocking query under another name
    get("health/service/WEB?index={index}&wait=30ms"),
    get("health/checks/WEB?index={index}&wait=30ms"),
    agent("check/warn/service:w1"),
    get("health/service/WEB?index={index}&wait=5s"),
    get("health/checks/WEB?index={index}&wait=5s"),
    agent("check/pass/service:w1"),
    # An instance takes another name of its service, and goes
    register("w3", "weB", 3),
    get("catalog/services"),
    get("health/service/web"),
    agent("service/deregister/w3"),
    get("health/service/WEB?index={index}&wait=5s"),
    get("catalog/services"),
    agent("service/deregister/W2"),
    agent("service/deregister/w2"),
    get("catalog/services"),
    get("catalog/service/Web"),
    agent("service/deregister/w1"),
    agent("service/deregister/other"),
    get("catalog/services"),
    get("health/service/WEB"),
)

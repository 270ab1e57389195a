"""Requests that register services and read them by Consul's API, one after the other."""

from __future__ import annotations

from typing import Any

from tests.support.consul_exchange import ConsulRequest

Json = dict[str, Any]

WEB_1: Json = {
    "ID": "web-1",
    "Name": "web",
    "Tags": ["v1", "primary"],
    "Address": "10.0.0.1",
    "Port": 8080,
    "Meta": {"version": "1", "owner": "team-web"},
    "Weights": {"Passing": 10, "Warning": 2},
    "EnableTagOverride": True,
    "Check": {"TTL": "300s", "Notes": "told by the instance", "DeregisterCriticalServiceAfter": "90m"},
}
WEB_2: Json = {
    "id": "web-2",
    "name": "web",
    "tags": ["v2"],
    "address": "10.0.0.2",
    "port": 8080,
    "checks": [
        {"ttl": "300s", "status": "passing"},
        {"checkid": "web-2-disk", "name": "disk", "ttl": 300000000000, "status": "warning"},
    ],
}
API: Json = {"Name": "api", "Address": "10.0.1.1", "Port": 9090}
IPV6: Json = {
    "Name": "six",
    "Address": "2001:db8::1",
    "Port": 9090,
    "TaggedAddresses": {"wan": {"Address": "192.0.2.6", "Port": 80}},
}
EXTERNAL: Json = {
    "Node": "db-host",
    "Address": "10.9.0.1",
    "NodeMeta": {"external-node": "true", "rack": "r1"},
    "Service": {
        "ID": "db1",
        "Service": "db",
        "Tags": ["master"],
        "Address": "10.9.0.2",
        "Port": 5432,
        "Meta": {"a": "b"},
    },
    "Check": {"CheckID": "db-alive", "Name": "db is alive", "Status": "passing", "ServiceID": "db1", "Output": "ok"},
}
NODE_CHECK: Json = {
    "Node": "db-host",
    "SkipNodeUpdate": True,
    "Checks": [{"CheckID": "disk", "Name": "disk", "Status": "warning", "Notes": "of the node", "Type": "script"}],
}
SECOND: Json = {
    "Node": "db-host",
    "SkipNodeUpdate": True,
    "Service": {"Service": "cache", "Port": 6379},
}


def put(path: str, body: object = None, about: str = "") -> ConsulRequest:
    """A write."""
    return ConsulRequest("PUT", f"/v1/{path}", body, about)


def get(path: str, about: str = "") -> ConsulRequest:
    """A reading."""
    return ConsulRequest("GET", f"/v1/{path}", about=about)


def register(body: object, query: str = "", about: str = "") -> ConsulRequest:
    """An instance registers itself."""
    return put(f"agent/service/register{query}", body, about)


READINGS = (
    get("agent/services"),
    get("agent/checks"),
    get("catalog/services"),
    get("catalog/service/web"),
    get("health/service/web"),
    get("health/service/web?passing"),
    get("health/checks/web"),
)

SERVICES_EXCHANGE: tuple[ConsulRequest, ...] = (
    # Nothing is there
    get("catalog/services"),
    get("catalog/service/web"),
    get("health/service/web"),
    get("health/checks/web"),
    get("agent/services"),
    get("agent/checks"),
    get("catalog/datacenters"),
    get("catalog/service/"),
    get("health/service/"),
    get("health/checks/"),
    get("health/service/web?passing=maybe"),
    get("health/service/web?filter=nonsense"),
    get("catalog/service/web?filter=Frob==1"),
    get("health/service/web?dc=dc9"),
    get("catalog/services?index=x"),
    # Instances register themselves
    register(WEB_1),
    *READINGS,
    register(WEB_2),
    *READINGS,
    register(API),
    register(IPV6),
    get("health/service/api"),
    get("health/service/six"),
    get("catalog/service/six"),
    get("catalog/services"),
    get("agent/service/web-1"),
    get("agent/service/absent"),
    get("agent/services?filter=Service==web"),
    get("agent/services?filter=Frob==web"),
    get("agent/checks?filter=Status==passing"),
    # Tags, filters and other parameters
    get("catalog/service/web?tag=v1"),
    get("catalog/service/web?tag=v1&tag=primary"),
    get("catalog/service/web?tag=v1&tag=v2"),
    get("health/service/web?tag=v2"),
    get("health/service/web?tag=absent"),
    get("catalog/service/web?tag=V1&tag=Primary"),
    get("health/service/web?tag="),
    get("catalog/service/web?tag=v1&tag="),
    get("catalog/services?tag=absent"),
    get("health/checks/web?tag=absent"),
    get("health/service/web?filter=Service.Meta.version==1"),
    get("health/service/web?filter=%22v2%22+in+Service.Tags"),
    get("health/service/web?filter=Checks.Status==warning"),
    get("catalog/service/web?filter=ServiceMeta.version==1"),
    get("catalog/service/web?filter=ServicePort==8080"),
    get("health/checks/web?filter=Status==warning"),
    get("health/service/web?near=_agent&stale"),
    get("health/service/web?dc=dc1"),
    get("catalog/services?filter=Name==web"),
    # Checks
    put("agent/check/pass/service:web-1"),
    get("health/service/web?passing"),
    put("agent/check/pass/service:web-1?note=all+is+well"),
    get("health/checks/web"),
    put("agent/check/warn/service:web-1?note=hot"),
    get("health/checks/web"),
    put("agent/check/fail/service:web-1?note=broken"),
    get("health/checks/web"),
    put("agent/check/update/service:web-1", {"Status": "passing", "Output": "updated"}),
    get("health/checks/web"),
    put("agent/check/update/service:web-1", {"Status": "frob"}),
    put("agent/check/update/service:web-1", {"Status": "passing", "Frob": 1}),
    put("agent/check/update/service:web-1", "{"),
    put("agent/check/pass/absent"),
    put("agent/check/fail/absent"),
    put("agent/check/update/absent", {"Status": "passing"}),
    put("agent/check/deregister/absent"),
    put("agent/check/register", {"ID": "web-1-mem", "Name": "memory", "ServiceID": "web-1", "TTL": "300s"}),
    get("health/checks/web"),
    put("agent/check/pass/web-1-mem"),
    get("health/service/web?passing"),
    put("agent/check/register", {"Name": "lost", "ServiceID": "absent", "TTL": "300s"}),
    put("agent/check/register", {"ServiceID": "web-1", "TTL": "300s"}),
    put("agent/check/register", {"Name": "x", "ServiceID": "web-1", "TTL": "300s", "Status": "frob"}),
    put("agent/check/register", {"Name": "x", "ServiceID": "web-1"}),
    put("agent/check/deregister/web-1-mem"),
    get("health/checks/web"),
    # Registered again: checks keep their status, and those that are not named stay unless it is asked for
    register(WEB_1),
    get("health/checks/web"),
    register({**WEB_1, "Check": None, "Port": 8081}),
    get("health/service/web"),
    register({**WEB_1, "Check": None, "Port": 8081}, "?replace-existing-checks"),
    get("health/service/web"),
    get("agent/checks"),
    register(WEB_1, "?replace-existing-checks=true"),
    get("health/checks/web"),
    # An id that goes to another service
    register({"ID": "api", "Name": "api-new", "Address": "10.0.1.1", "Port": 9090}),
    get("catalog/services"),
    get("health/service/api"),
    get("health/service/api-new"),
    # Maintenance
    put("agent/service/maintenance/web-2"),
    put("agent/service/maintenance/web-2?enable=maybe"),
    put("agent/service/maintenance/?enable=true"),
    put("agent/service/maintenance/absent?enable=true"),
    put("agent/service/maintenance/absent?enable=false"),
    put("agent/service/maintenance/web-2?enable=true&reason=new+disk"),
    get("health/service/web"),
    get("health/service/web?passing"),
    put("agent/service/maintenance/web-2?enable=true&reason=another"),
    get("health/checks/web"),
    put("agent/service/maintenance/web-2?enable=false"),
    put("agent/service/maintenance/web-2?enable=false"),
    get("health/checks/web"),
    put("agent/service/maintenance/web-2?enable=true"),
    get("health/checks/web"),
    put("agent/service/maintenance/web-2?enable=0"),
    # What cannot be registered
    register(""),
    register("[]"),
    register("{"),
    register({}),
    register({"ID": "x"}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Frob": 1}),
    register({"Name": "x", "Port": "eighty", "Address": "10.0.0.9"}),
    register({"Name": "x", "Port": 1, "Address": "0.0.0.0"}),
    register({"Name": "x", "Port": 1, "Address": "::"}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Weights": {"Passing": 0, "Warning": 1}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Weights": {"Passing": 1, "Warning": -1}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Weights": {"Passing": 65536, "Warning": 1}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Meta": {"a b": "c"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Meta": {"": "c"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Meta": {"consul-x": "c"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Meta": {"a": "b" * 513}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Check": {"TTL": "10s", "Interval": "10s"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Check": {"Name": "no TTL"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Check": {"TTL": "soon"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Check": {"TTL": "10s", "Status": "frob"}}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Checks": [{}]}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Check": {"HTTP": "http://10.0.0.9/"}}),
    register({"Name": "x", "Kind": "connect-proxy", "Port": 1, "Address": "10.0.0.9"}),
    register({"Name": "x", "Port": 1, "Address": "10.0.0.9", "Namespace": "team"}),
    # What only one of the two registers
    register({"Name": "no-port", "Address": "10.0.0.9"}, about="no port"),
    register({"Name": "host", "Port": 1, "Address": "host.example"}, about="a host name"),
    register(
        {"Name": "http", "Port": 1, "Address": "10.0.0.9", "Check": {"HTTP": "http://10.0.0.9/", "Interval": "10s"}},
        about="an HTTP check",
    ),
    register(
        {"Name": "grpc", "Port": 1, "Address": "10.0.0.9", "Check": {"GRPC": "10.0.0.9:1", "Interval": "10s"}},
        about="a gRPC check",
    ),
    register(
        {"Name": "tcp", "Port": 1, "Address": "10.0.0.9", "Check": {"TCP": "10.0.0.9:1", "Interval": "10s"}},
        about="a TCP check",
    ),
    register(
        {"Name": "alias", "Port": 1, "Address": "10.0.0.9", "Check": {"AliasService": "web-1"}}, about="an alias check"
    ),
    register(
        {"Name": "quick", "Port": 1, "Address": "10.0.0.9", "Check": {"TTL": "10ms"}}, about="a TTL below a second"
    ),
    register(
        {"Name": "snake", "Port": 1, "Address": "10.0.0.9", "Checks": [{"check_id": "x", "ttl": "10s"}]},
        about="check_id",
    ),
    register(
        {"Name": "zoned", "Port": 1, "Address": "10.0.0.9", "Locality": {"Region": "eu", "Zone": "a"}},
        about="a locality",
    ),
    *(
        put(f"agent/service/deregister/{id}", about=id)
        for id in ("no-port", "host", "http", "grpc", "tcp", "alias", "quick")
    ),
    *(put(f"agent/service/deregister/{id}", about=id) for id in ("snake", "zoned")),
    get("agent/services?filter=Service==x"),
    # What is registered on other nodes
    put("catalog/register", {"Address": "10.9.0.1"}),
    put("catalog/register", {"Node": "db-host"}),
    put("catalog/register", "{"),
    put("catalog/register", {"Node": "db-host", "Address": "10.9.0.1", "Service": {"ID": "x"}}),
    put(
        "catalog/register",
        {"Node": "db-host", "Address": "10.9.0.1", "Service": {"Service": "x", "Port": 1, "Address": "0.0.0.0"}},
    ),
    put("catalog/register", {**NODE_CHECK, "SkipNodeUpdate": False}),
    put("catalog/register", {**EXTERNAL, "Datacenter": "dc9"}),
    put(
        "catalog/register", {"Node": "db-host", "Address": "10.9.0.1", "Check": {"CheckID": "c", "ServiceID": "absent"}}
    ),
    put("catalog/register", {**EXTERNAL, "Check": {"Node": "another", "CheckID": "c"}}),
    put("catalog/register", EXTERNAL),
    get("catalog/service/db"),
    get("health/service/db"),
    get("health/service/db?passing"),
    get("health/service/db?node-meta=rack:r1"),
    get("health/service/db?node-meta=rack:r2"),
    get("catalog/service/db?node-meta=rack:r1&node-meta=external-node:true"),
    get("catalog/services?node-meta=rack:r1"),
    get("health/checks/db?node-meta=rack:r2"),
    get("health/service/db?filter=Node.Meta.rack==r1"),
    put("catalog/register", EXTERNAL),
    put("catalog/register", NODE_CHECK),
    get("health/service/db"),
    get("health/service/db?passing=1"),
    get("health/checks/db"),
    put("catalog/register", SECOND),
    get("health/service/cache"),
    get("catalog/service/cache"),
    get("catalog/services"),
    get("agent/services"),
    put("catalog/register", {**EXTERNAL, "Address": "10.9.0.7", "Service": None, "Check": None}),
    get("catalog/service/cache"),
    put(
        "catalog/register",
        {**SECOND, "Service": {"Service": "cache", "Port": 6379, "Weights": {"Passing": 0, "Warning": 0}}},
    ),
    get("health/service/cache"),
    put("catalog/register", SECOND),
    put("catalog/deregister", {}),
    put("catalog/deregister", "{"),
    put("catalog/deregister", {"Node": "absent"}),
    put("catalog/deregister", {"Node": "db-host", "CheckID": "absent"}),
    put("catalog/deregister", {"Node": "db-host", "ServiceID": "absent"}),
    put("catalog/deregister", {"Node": "db-host", "CheckID": "disk"}),
    get("health/service/db"),
    put("catalog/deregister", {"Node": "db-host", "ServiceID": "db1"}),
    get("health/service/db"),
    get("health/service/cache"),
    get("health/checks/db"),
    put("catalog/deregister", {"Node": "db-host", "Datacenter": "dc1"}),
    get("health/service/cache"),
    get("catalog/services"),
    # Waiting: at once for what has changed, else until the wait is over
    get("health/service/web?index={index}&wait=50ms"),
    get("catalog/services?index={index}&wait=50ms"),
    get("catalog/service/web?index={index}&wait=50ms"),
    get("health/checks/web?index={index}&wait=50ms"),
    get("health/service/absent?index={index}&wait=50ms"),
    put("agent/check/pass/service:web-1"),
    get("health/service/web?index={index}&wait=5s"),
    get("health/checks/web?index={index}&wait=5s"),
    register({**API, "Tags": ["new"]}),
    get("catalog/services?index={index}&wait=5s"),
    get("health/service/web?index={index}&wait=50ms"),
    # The end
    put("agent/service/deregister/web-1"),
    get("health/service/web?index={index}&wait=5s"),
    put("agent/service/deregister/web-1"),
    put("agent/service/deregister/absent"),
    put("agent/service/deregister/web-2"),
    put("agent/service/deregister/api"),
    put("agent/service/deregister/six"),
    get("catalog/services"),
    get("health/service/web"),
    get("agent/checks"),
    # Consul's own paths that are not here
    ConsulRequest("POST", "/v1/agent/service/register", API),
    ConsulRequest("GET", "/v1/agent/service/register"),
    ConsulRequest("DELETE", "/v1/agent/service/deregister/api"),
)

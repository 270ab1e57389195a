"""Requests that clients of Consul probe with, and those for instances of the mesh, one after the other."""

from __future__ import annotations

from tests.support.consul_exchange import ConsulRequest
from tests.support.consul_services import API, get, put, register

NATIVE = "a connect-native instance"
PROBES_EXCHANGE: tuple[ConsulRequest, ...] = (
    get("status/leader"),
    get("status/peers"),
    get("status/leader?dc=dc1"),
    get("status/leader?dc=dc9"),
    get("status/peers?dc=dc9"),
    get("agent/self"),
    get("agent/self?dc=dc9"),
    ConsulRequest("PUT", "/v1/agent/self"),
    ConsulRequest("PUT", "/v1/status/leader"),
    get("health/connect/api"),
    get("catalog/connect/api"),
    get("health/connect/"),
    get("catalog/connect/"),
    get("health/connect/api?dc=dc9"),
    get("health/connect/api?filter=Frob==1"),
    register(API),
    register({**API, "Connect": {"Native": True}}, about=NATIVE),
    get("health/connect/api"),
    get("health/connect/api?passing"),
    get("health/connect/api?passing=maybe"),
    get("health/connect/api?filter=Service.Port==9090"),
    get("health/connect/api?filter=Service.Port==1"),
    get("catalog/connect/api"),
    get("catalog/connect/api?filter=ServicePort==9090"),
    get("health/connect/api?index={index}&wait=50ms"),
    put("agent/service/deregister/api"),
    get("health/connect/api"),
)

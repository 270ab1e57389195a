"""The shapes under ``shapes/``: configurations that use one of Envoy's extensions or options each.

Those under ``shapes/newer/`` (`NEWER`) use what Envoy has and xds-protos lacks. ``@FILES@`` in a shape is a directory
with certificates and files of resources, see `make_files`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.support.pki import CertificateAuthority

Json = dict[str, Any]

FOLDER = Path(__file__).parent / "shapes"
FILES = "@FILES@"
NEWER = "newer/"
BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"

# Resources that stand in a bootstrap as they are, by their type.
_STATIC = {
    "envoy.config.cluster.v3.Cluster": "clusters",
    "envoy.config.listener.v3.Listener": "listeners",
    "envoy.extensions.transport_sockets.tls.v3.Secret": "secrets",
}


def shape_names() -> list[str]:
    """All shapes, sorted."""
    return sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.yaml"))


def load_shape(name: str, files: Path | None = None) -> list[Json]:
    """A shape's resources."""
    text = (FOLDER / f"{name}.yaml").read_text()
    resources: list[Json] = yaml.safe_load(text if files is None else text.replace(FILES, str(files)))["resources"]
    return resources


def type_of(resource: Json) -> str:
    """The full name of a resource's type."""
    return str(resource["@type"]).rpartition("/")[2]


def make_files(directory: Path) -> None:
    """Make what ``@FILES@`` stands for."""
    authority = CertificateAuthority(directory, "ca")
    authority.issue("server")
    authority.issue("client")
    for name in ("routes.yaml", "ecds.yaml"):
        (directory / name).write_text('{"resources": []}')


def bootstrap_of(resources: Iterable[Json]) -> Json:
    """A bootstrap that holds all of them."""
    package = "type.googleapis.com/envoy.extensions.bootstrap"
    internal = {"name": "internal", "typed_config": {"@type": f"{package}.internal_listener.v3.InternalListener"}}
    bootstrap: Json = {"node": {"id": "n", "cluster": "c"}, "bootstrap_extensions": [internal]}
    for resource in resources:
        _add(bootstrap, resource)
    return bootstrap


def _add(bootstrap: Json, resource: Json) -> None:
    """Put a resource where a bootstrap has a place for it: routes into a listener, endpoints into a cluster."""
    kind, content = type_of(resource), {key: value for key, value in resource.items() if key != "@type"}
    static = bootstrap.setdefault("static_resources", {})
    if kind == BOOTSTRAP:
        _merge(bootstrap, content)
    elif kind in _STATIC:
        static.setdefault(_STATIC[kind], []).append(content)
    elif kind == "envoy.config.route.v3.RouteConfiguration":
        static.setdefault("listeners", []).append(_listener(content["name"], content))
    elif kind == "envoy.config.endpoint.v3.ClusterLoadAssignment":
        name = content["cluster_name"]
        static.setdefault("clusters", []).append({"name": name, "type": "STATIC", "load_assignment": content})
    elif kind == "envoy.service.runtime.v3.Runtime":
        layers = bootstrap.setdefault("layered_runtime", {}).setdefault("layers", [])
        layers.append({"name": content["name"], "static_layer": content["layer"]})
    else:
        assert kind == "envoy.config.core.v3.TypedExtensionConfig", kind
        static.setdefault("listeners", []).append(_listener(content["name"], {"name": "r"}, content))


def _merge(into: Json, more: Json) -> None:
    """Merge objects and join lists; of two values the newer stays."""
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            into[key] = [*into.get(key, []), *value]
        else:
            into[key] = value


def _listener(name: str, routes: Json, *filters: Json) -> Json:
    """An HTTP listener on an internal address: those clash with nobody's."""
    package = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{package}.http.router.v3.Router"}}
    kept = [one for one in filters if not _is_router(one)]
    connections = {
        "@type": f"{package}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": routes,
        "http_filters": [*kept, router],
    }
    return {
        "name": f"{name}-holder",
        "internal_listener": {},
        "filter_chains": [{"filters": [{"name": "connections", "typed_config": connections}]}],
    }


def _is_router(extension: Json) -> bool:
    config = extension.get("typed_config")
    return isinstance(config, dict) and str(config.get("@type", "")).endswith(".http.router.v3.Router")

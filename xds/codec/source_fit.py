"""Config sources that do not fit a client: those of ADS, for an Envoy whose bootstrap has no ``ads_config``.

Envoy 1.40 rejects the cluster or listener: "ADS must be configured to support an ADS config source".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xds.model.errors import ERROR, WARNING, Violation
from xds.model.resource import Resource
from xds.model.resource_type import alias_of

NODES_SHOWN = 3
_CODE = "no_ads"


def names_ads(resource: Resource) -> bool:
    """Whether the resource names another by ADS."""
    return any(reference.source == "ads" for reference in resource.references)


def check_bootstrap(resources: Sequence[Resource], bootstrap: Mapping[str, Any]) -> list[Violation]:
    """An error if a resource names another by ADS, and the bootstrap, as a JSON value, has no ``ads_config``."""
    dynamic = bootstrap.get("dynamic_resources") or bootstrap.get("dynamicResources") or {}
    if isinstance(dynamic, dict) and (dynamic.get("ads_config") or dynamic.get("adsConfig")):
        return []
    return _found(resources, "the bootstrap has no ads_config, so Envoy rejects what is named by ADS", ERROR)


def check_nodes(resources: Iterable[Resource], nodes: Sequence[str]) -> list[Violation]:
    """A warning if a resource names another by ADS.

    ``nodes`` take clusters or listeners by streams of their own or by polls. That does not prove that their bootstrap
    lacks ``ads_config``.
    """
    if not nodes:
        return []
    shown = ", ".join((*nodes[:NODES_SHOWN], *(("...",) if len(nodes) > NODES_SHOWN else ())))
    count = "1 node of the group takes" if len(nodes) == 1 else f"{len(nodes)} nodes of the group take"
    detail = (
        f"{count} clusters or listeners without ADS ({shown}): Envoy rejects what is named by ADS "
        "unless its bootstrap has ads_config"
    )
    return _found(resources, detail, WARNING)


def _found(resources: Iterable[Resource], detail: str, severity: str) -> list[Violation]:
    """One finding about all resources that name another by ADS, at the place of the first."""
    of_ads = [(index, resource) for index, resource in enumerate(resources) if names_ads(resource)]
    if not of_ads:
        return []
    index, first = of_ads[0]
    others = f" (and {len(of_ads) - 1} more)" if len(of_ads) > 1 else ""
    hint = "give them the api_config_source that the bootstrap has in cds_config, or make a bootstrap with --mode ads"
    place = f"{alias_of(first.type_url)}/{first.name}"
    return [Violation(_CODE, f"{detail}{others}", place, severity=severity, hint=hint, index=index)]

"""Field names of Cloud Service Mesh and Cloud Load Balancing with their equivalents here, as hints in errors."""

from __future__ import annotations

_OWN_NAMES = {
    "loadBalancingAlgorithm": 'here it is "strategy", in lower case: waterfall_by_region',
    "autoCapacityDrain": 'here it is "drain", on by default; "below": 0 turns it off',
    "failoverConfig": 'here it is "drain": {"below", "restore"}, fractions of healthy endpoints',
    "failoverHealthThreshold": 'here it is "drain": {"below"}, a fraction of healthy endpoints, not a percentage',
    "isolationConfig": 'here it is "spill": {"within": "region"}',
    "isolationGranularity": 'here it is "spill": {"within": "zone" or "region"}',
    "isolationMode": 'here it is "spill": {"within", "at_most"}',
    "capacityScaler": 'here it is "capacity_scaler": [{"localities", "factor"}]',
    "maxRatePerEndpoint": 'here it is "capacity": {"rates": [{"per_endpoint_rps"}]}',
    "maxRatePerInstance": 'here it is "capacity": {"rates": [{"per_endpoint_rps"}]}',
    "maxRate": 'here it is "capacity": {"rates": [{"per_locality_rps"}]}',
    "maxUtilization": 'here it is "target_utilisation", or the "target" of a metric',
    "customMetrics": 'here it is "capacity": {"metrics": [{"name", "target"}]}',
    "balancingMode": 'here "capacity" has "rates" (RATE), or "metrics" (UTILIZATION, CUSTOM_METRICS)',
    "preference": 'here it is "preferred": [{"region", "zone"}]',
}
_FOLDED = {name.lower(): hint for name, hint in _OWN_NAMES.items()}


def own_name(name: str) -> str:
    """The equivalent of a foreign field, in words; empty for an unknown name. Case and underscores do not matter."""
    return _FOLDED.get(name.replace("_", "").replace("-", "").lower(), "")

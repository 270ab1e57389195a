"""Rules on the JWT filter, measured with Envoy 1.40: key sets, and the providers and requirements that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.findings import FieldPath
from xds.codec.inline_data import inline_content, specifier
from xds.codec.rules import MessageRule, Problem

_JWT = "envoy.extensions.filters.http.jwt_authn.v3"
_SHOWN = 80


def _check_provider(provider: Any) -> list[Problem]:
    """Check a ``JwtProvider``: an inline key set is JSON with at least one key. Envoy ignores an empty text."""
    text = inline_content(provider, "local_jwks")
    fault = _key_set_fault(text) if text else ""
    if not fault:
        return []
    path = ("local_jwks", specifier(provider.local_jwks))
    return [Problem(path, "bad_jwks", f"local_jwks {fault}", '{"keys": [...]}')]


def _key_set_fault(text: str) -> str:
    """What is wrong with a key set; empty if nothing is.

    Envoy's JSON parser accepts line ends within strings, single quotes and bare keys. So a text that Python cannot
    parse passes if it begins like JSON or PEM.
    """
    try:
        keys = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return "" if text.lstrip().startswith(("{", "-----BEGIN")) else "is not a JSON Web Key Set"
    if not isinstance(keys, dict):
        return "is not a JSON Web Key Set"
    if "keys" not in keys and any(_is_certificate(one) for one in keys.values()):
        return ""
    listed = keys.get("keys")
    if not isinstance(listed, list):
        return "has no list 'keys'"
    if not any(isinstance(key, dict) and key.get("kty") for key in listed):
        return "has no key with its type ('kty')"
    return ""


def _is_certificate(value: object) -> bool:
    """A key set may hold certificates by the ids of their keys."""
    return isinstance(value, str) and "-----BEGIN CERTIFICATE-----" in value


def _check_authentication(config: Any) -> list[Problem]:
    """Check a ``JwtAuthentication``: requirements name known providers, and rules known requirements."""
    problems: list[Problem] = []
    for index, rule in enumerate(config.rules):
        if rule.WhichOneof("requirement_type") == "requires":
            problems += _unknown_providers(rule.requires, config.providers, ("rules", index, "requires"))
        elif rule.requirement_name and rule.requirement_name not in config.requirement_map:
            path = ("rules", index, "requirement_name")
            problems.append(_unknown(path, "requirement", rule.requirement_name, config.requirement_map))
    for name, requirement in config.requirement_map.items():
        problems += _unknown_providers(requirement, config.providers, ("requirement_map", name))
    for key, requirement in config.filter_state_rules.requires.items():
        problems += _unknown_providers(requirement, config.providers, ("filter_state_rules", "requires", key))
    return problems


def _unknown_providers(requirement: Any, known: Mapping[str, object], path: FieldPath) -> Iterator[Problem]:
    """Problems for unknown providers in a ``JwtRequirement``, which may be a tree."""
    match requirement.WhichOneof("requires_type"):
        case "provider_name":
            yield from _named(requirement, known, path)
        case "provider_and_audiences":
            yield from _named(requirement.provider_and_audiences, known, (*path, "provider_and_audiences"))
        case "requires_any" | "requires_all" as field:
            for index, one in enumerate(getattr(requirement, field).requirements):
                yield from _unknown_providers(one, known, (*path, field, "requirements", index))


def _named(holder: Any, known: Mapping[str, object], path: FieldPath) -> Iterator[Problem]:
    if holder.provider_name not in known:
        yield _unknown((*path, "provider_name"), "provider", holder.provider_name, known)


def _unknown(path: FieldPath, noun: str, name: str, known: Mapping[str, object]) -> Problem:
    names = ", ".join(sorted(known))[:_SHOWN]
    hint = f"one of {names}" if names else f"there are no {noun}s"
    return Problem(path, "unknown_name", f"the filter has no {noun} {name[:_SHOWN]!r}", hint)


JWT_RULES: Mapping[str, MessageRule] = {
    f"{_JWT}.JwtAuthentication": _check_authentication,
    f"{_JWT}.JwtProvider": _check_provider,
}

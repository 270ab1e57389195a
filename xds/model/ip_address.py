"""IP addresses and ports as Envoy reads and writes them."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_ip_address(text: str) -> bool:
    """Whether a text is an IP address as Envoy parses it: no zone index, no leading zeros."""
    try:
        return ip_address(text) is not None and "%" not in text
    except ValueError:
        return False


def address_text(host: str, port: int | str) -> str:
    """``10.0.0.1:80``, ``[2001:db8::1]:80``, ``web:80``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def canonical_ipv6(text: str) -> str:
    """The spelling of RFC 5952 for an IPv6 address; any other text unchanged."""
    if not is_ip_address(text):
        return text
    address = IPv6Address(text)
    # How these are spelled depends on the release of Python.
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped is not None else str(address)

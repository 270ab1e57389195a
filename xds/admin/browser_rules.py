"""The host names of the server, and the requests that must prove that no foreign page made them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

ANY = "*"
LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """Which requests are checked.

    ``hosts`` are the names of this server besides ``localhost`` and addresses; ``*.example.org`` stands for all names
    below it, ``*`` for every name. ``trusts_tokens``: the only credentials are tokens. A browser adds no token to a
    request by itself, so a request needs no other check. ``trusts_bearers``: certificates are credentials, too. A
    browser does add those, so only a request with a token needs no other check.
    """

    hosts: tuple[str, ...] = (ANY,)
    trusts_tokens: bool = False
    trusts_bearers: bool = False

    def must_check(self, *, has_token: bool) -> bool:
        """Whether the server must check that no foreign page made the request."""
        return not (self.trusts_tokens or (self.trusts_bearers and has_token))

    def is_own_host(self, host: str) -> bool:
        """Whether ``host``, in the form of a Host header, is a name of this server."""
        name = host_name(host)
        return name is not None and (is_address(name) or name == LOCAL or any(_matches(name, of) for of in self.hosts))


def host_name(host: str) -> str | None:
    """The name or address in a Host header, in lower case without the port; None if it cannot be one."""
    try:
        split = urlsplit(f"//{host}")
        _ = split.port
    except ValueError:
        return None
    if split.netloc != host or "@" in host or not split.hostname:
        return None
    return split.hostname.lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether ``name`` is an IP address. A foreign page cannot make an address its own name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(name: str, known: str) -> bool:
    return known in {ANY, name} or (known.startswith("*.") and name.endswith(known[1:]))

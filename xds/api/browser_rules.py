"""By which names clients may call the server, and which requests that is asked of."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

ANY = "*"
LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """Which requests are judged.

    ``hosts`` are the names of this server besides ``localhost`` and addresses; ``*.example.org`` stands for all below
    it, ``*`` for whatever a client says. ``trusts_tokens``: credentials are tokens only, which a browser adds to no
    request by itself, so that a request needs no other proof. ``trusts_bearers``: certificates are credentials, too,
    which a browser does add; a request with a token needs no other proof.
    """

    hosts: tuple[str, ...] = (ANY,)
    trusts_tokens: bool = False
    trusts_bearers: bool = False

    def judges(self, *, has_token: bool) -> bool:
        """Whether a request must show that no foreign page made it."""
        return not (self.trusts_tokens or (self.trusts_bearers and has_token))

    def knows(self, host: str) -> bool:
        """Whether ``host``, as a Host header has it, is a name of this server."""
        name = host_name(host)
        return name is not None and (is_address(name) or name == LOCAL or any(_matches(name, of) for of in self.hosts))


def host_name(host: str) -> str | None:
    """The name or address in a Host header, in lower case and without its port; None for what cannot be one."""
    try:
        split = urlsplit(f"//{host}")
        _ = split.port
    except ValueError:
        return None
    if split.netloc != host or "@" in host or not split.hostname:
        return None
    return split.hostname.lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether it is an IP address: no name leads to it, so no page can have made it its own."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(name: str, known: str) -> bool:
    return known in {ANY, name} or (known.startswith("*.") and name.endswith(known[1:]))

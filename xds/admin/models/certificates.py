"""Certificates of pushed resources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateExpiry:
    """A certificate chain in a pushed resource.

    * ``type``: the type alias of the resource;
    * ``names``: some names of its leaf: DNS names and URIs, or the common name;
    * ``not_after``: when the first certificate of the chain expires.
    """

    schema_name: ClassVar[str] = "CertificateItem"

    group: str
    type: str
    name: str
    names: tuple[str, ...]
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePage:
    """A page of certificate chains; those that expire first are first."""

    items: tuple[CertificateExpiry, ...]
    next_page_token: str = ""

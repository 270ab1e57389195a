"""When the certificates of pushed resources expire."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import Paging
from xds.admin.dependencies import Deps
from xds.admin.models.certificates import CertificateExpiry
from xds.admin.models.copying import copied
from xds.admin.routing import api_router
from xds.model.errors import NotFoundError
from xds.push.certificates import PushedCertificate

router = api_router("groups")


@router.serve(operations.LIST_CERTIFICATES)
async def list_certificates(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Annotated[str, Query(description="Only certificates of this group; empty: of all groups")] = "",
) -> Response:
    """The certificate chains in pushed secrets, listeners and clusters, by expiry, earliest first.

    Files on the machines of the proxies and trusted authorities are not among them.
    """
    publisher = deps.publisher
    if group and not publisher.groups.is_group(group):
        raise NotFoundError(f"no such group: {group!r}")
    certificates = await asyncio.to_thread(publisher.certificates.of, group) if group else ()
    certificates = certificates if group else tuple(await asyncio.to_thread(publisher.certificates.all))
    return await paging.answer(
        request, await paging.find_items_after(certificates, _key), _key, partial(copied, CertificateExpiry)
    )


def _key(certificate: PushedCertificate) -> str:
    return f"{certificate.not_after:015.0f} {certificate.group} {certificate.type} {certificate.name}"

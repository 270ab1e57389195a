"""`If-Match` and `If-None-Match` of documents that make no revision: policies, settings of groups."""

from __future__ import annotations

import re
from http import HTTPStatus

from api.problem import RequestError
from api.push import check_stated
from api.services import Services
from xds.control.etags import ANY_ETAG, NO_ETAG


def wanted_etag(here: Services, prefix: str, if_match: str | None, if_none_match: str | None) -> str:
    """What the document must be now; empty: whatever it is. Raises ``RequestError``."""
    check_stated(here, if_match, if_none_match)
    if if_none_match is not None:
        if if_none_match.strip() != ANY_ETAG:
            raise RequestError(HTTPStatus.BAD_REQUEST, "If-None-Match of a write can only be *")
        return NO_ETAG
    if if_match is None or if_match.strip() == ANY_ETAG:
        return "" if if_match is None else ANY_ETAG
    tag = re.fullmatch(rf'\s*(?:W/)?"?({prefix}-[0-9a-f]{{1,32}})"?\s*', if_match)
    if tag is None:
        detail = f"If-Match is no etag of this kind ({prefix}-...): {if_match[:100]!r}"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail)
    return tag[1]

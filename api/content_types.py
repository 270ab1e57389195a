"""Between bodies and resources: content types, decoding off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Header, Request

from api.problem import RequestError
from xds.codec.resources import DecodedPush, InputFormat, ResourceDecoder

OFF_LOOP_BYTES = 64 * 1024
_MEDIA: Mapping[str, InputFormat] = {
    "application/json": "json",
    "text/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
}

T = TypeVar("T")

ContentType = Annotated[str, Header(description="JSON, YAML or a serialized DiscoveryResponse")]


def media_of(content_type: str) -> InputFormat:
    """What a Content-Type announces. Raises ``RequestError`` (415).

    One is needed: a page of another origin can send a body without, and no browser asks whether it may.
    """
    name = content_type.partition(";")[0].strip().lower()
    media = _MEDIA.get(name)
    if media is None:
        accepted = "application/json, application/yaml, application/x-protobuf"
        what = f"cannot read {name[:100]!r}" if name else "a Content-Type is needed"
        detail = f"{what}; send one of {accepted}"
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, {"Accept": accepted})
    return media


async def decode_pushed(body: bytes, content_type: str, decoder: ResourceDecoder) -> DecodedPush:
    """A snapshot's body. Raises ``ValidationError``, ``RequestError``."""
    media = media_of(content_type)
    return await off_loop(len(body), lambda: decoder.document(body, media))


async def decode_one(body: bytes, content_type: str, type_url: str, name: str, decoder: ResourceDecoder) -> DecodedPush:
    """One resource's body: its JSON or YAML, or its serialized message. Raises as ``decode_pushed``."""
    media = media_of(content_type)
    return await off_loop(len(body), lambda: decoder.single(body, media, type_url, name))


def accepts_yaml(request: Request) -> bool:
    """True when the client asks for YAML."""
    return "yaml" in request.headers.get("accept", "")


async def off_loop(size: int, function: Callable[[], T]) -> T:
    """Run ``function``; in a thread when ``size`` bytes would hold up the streams."""
    return function() if size <= OFF_LOOP_BYTES else await asyncio.to_thread(function)

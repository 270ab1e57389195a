"""The OpenAPI description that every server gives, made once: it takes 0.4 s."""

from xds.app.admin import openapi_document

DESCRIPTION = openapi_document()

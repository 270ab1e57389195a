"""The admin API's public door: its application, and its description in ``openapi.json``.

The code is in `xds.api`. This package is in the repository alone: the wheel has only `xds`, so that a program that
uses the server may have an ``api`` of its own. Nothing at run time imports it.
"""

from xds.api.app import create_app

__all__ = ["create_app"]

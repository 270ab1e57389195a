"""The public entry of the admin API: its application, and its description in ``openapi.json``.

The code is in `xds.admin` and in the features. This package is in the repository, not in the wheel, so that a program
that uses the server may have its own ``api``. Nothing at run time imports it.
"""

from xds.app.admin import create_app

__all__ = ["create_app"]

"""The documents of ``api`` that the code describes: the admin API, the settings, a traffic assignment policy.

With ``--check`` they are compared, not written. The ``.proto`` files there are sources, which ``tools.proto.generate``
compiles.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from xds.app.admin import openapi_document
from xds.app.settings import SETTINGS
from xds.steering.policy_schema import POLICY_SCHEMA

FOLDER = Path(__file__).parents[1] / "api"

Document = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Without titles that only spell the name of a field in another way."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """None is set."""
        return False


def settings_schema() -> Document:
    """The JSON Schema of the file that ``xds serve --config`` reads."""
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **SETTINGS.model_json_schema(schema_generator=_Untitled),
        "title": "Settings of xds-server",
        "description": "The file of `xds serve --config` (docs/configuration.md)",
    }


def policy_schema() -> Document:
    """The JSON Schema of the file that ``xds assignment set`` reads."""
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "Traffic assignment policy", **POLICY_SCHEMA}


DOCUMENTS: Mapping[str, Callable[[], Document]] = {
    "openapi.json": openapi_document,
    "settings.schema.json": settings_schema,
    "policy.schema.json": policy_schema,
}


def main() -> int:
    """Run the program."""
    outdated = 0
    for name, document in DOCUMENTS.items():
        path = FOLDER / name
        text = json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
        if path.is_file() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            outdated += 1
            print(f"api/{name} is not what the code says; run `make generate`", file=sys.stderr)
        else:
            path.write_text(text)
    return int(outdated > 0)


if __name__ == "__main__":
    sys.exit(main())

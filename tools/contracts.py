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
from xds.settings.settings import MOVED
from xds.steering.policy_schema import POLICY_SCHEMA

FOLDER = Path(__file__).parents[1] / "api"

Document = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Without titles that only spell the name of a field in another way."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """None is set."""
        return False


def settings_schema() -> Document:
    """The JSON Schema of the file that ``xds serve --config`` reads, with the names of earlier releases."""
    schema = SETTINGS.model_json_schema(schema_generator=_Untitled)
    for old, new in MOVED.items():
        (old_section, old_name), (section, name) = old.split("."), new.split(".")
        earlier = {"description": f"The earlier name of `{new}`", "deprecated": True}
        _settings_of(schema, old_section)[old_name] = {**_settings_of(schema, section)[name], **earlier}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **schema,
        "title": "Settings of xds-server",
        "description": "The file of `xds serve --config` (docs/configuration.md)",
    }


def _settings_of(schema: Document, section: str) -> Document:
    """The schemas of the settings of a section, by name."""
    kind = schema["properties"][section]["$ref"].rpartition("/")[2]
    settings: Document = schema["$defs"][kind]["properties"]
    return settings


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

"""The published description of the admin API, ``api/openapi.json``. With ``--check`` it is compared, not written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from xds.app.admin import openapi_document

DOCUMENT = Path(__file__).parents[1] / "api/openapi.json"


def main() -> int:
    """Run the program."""
    text = json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["--check"]:
        if DOCUMENT.read_text() == text:
            return 0
        print("api/openapi.json is not what the server serves; run `make generate`", file=sys.stderr)
        return 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

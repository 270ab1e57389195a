"""What anybody must find on a page: names of controls, headers of tables, text that can be read, no sideways scroll."""

from __future__ import annotations

from pathlib import Path

from tests.browser.devtools import BrowserPage

LEGIBLE = 4.5  # https://www.w3.org/TR/WCAG22/#contrast-minimum
_SCRIPT = (Path(__file__).parent / "audit.js").read_text()
_FUNCTION = _SCRIPT[_SCRIPT.index("(legible)") :]


def audit(page: BrowserPage, legible: float = LEGIBLE) -> list[str]:
    """What is wrong with the page as it is shown."""
    return [str(each) for each in page.evaluate(f"({_FUNCTION})({legible})")]

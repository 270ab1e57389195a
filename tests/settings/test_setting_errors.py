"""Messages about settings: they name the place and the kind, and never show what may be a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from xds.app.settings import SETTINGS, load_settings, make_settings
from xds.codec.document import parse_document
from xds.model.errors import MalformedError
from xds.settings.setting_errors import section_class, section_kinds
from xds.settings.settings import SettingsError

SECRET = "hunter2secret"
WRONG = (SECRET, [SECRET], {"a": [SECRET]}, f"https://operator:{SECRET}@consul:8501", f"{SECRET}:53", [[SECRET]])


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Of all settings, those in sections of all kinds of sources too."""
    for name, member in model.model_fields.items():
        yield (*above, name)
        for kind, section in section_kinds(member.annotation).items():
            yield from _paths(section, (*above, name, f"a-{kind}"))
        if (section_of := section_class(member.annotation)) is not None:
            yield from _paths(section_of, (*above, name))


def _document(path: tuple[str, ...], value: object) -> dict[str, Any]:
    made: Any = value
    for part in reversed(path):
        if part.startswith("a-") and isinstance(made, dict):
            made = {**made, "kind": part.removeprefix("a-")}
        made = {part: made}
    return dict(made)


# Addresses to listen on are no secrets, and are named where they are too open.
SHOWN = {("server", "grpc", "host"), ("server", "http", "host")}


@pytest.mark.parametrize("path", [path for path in _paths(SETTINGS) if path not in SHOWN], ids=".".join)
def test_no_setting_of_a_wrong_shape_is_shown(path: tuple[str, ...]) -> None:
    """A password may stand in any of them: in the URL of a source, or one level too high."""
    for value in WRONG:
        try:
            make_settings(_document(path, value))
        except SettingsError as error:
            assert SECRET not in str(error), (path, value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"server": {"grpc": {"port": 70_000}}},
            "server.grpc.port: Input should be less than or equal to 65535 (got 70000)",
        ),
        ({"server": {"grpc": {"port": SECRET}}}, "(got a text)"),
        ({"sources": {"c": {"kind": "consul", "address": f"https://u:{SECRET}@h"}}}, "expected http://HOST:PORT"),
    ],
)
def test_an_error_names_the_expected_value(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make_settings(given)
    assert says in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"auth:\n  tokens: [{SECRET}\n  x: y",
        f"auth:\n  tokens: *{SECRET}",
        f"auth:\n  tokens: !{SECRET} x",
        f"auth: {SECRET}: x",
        f"auth:\n\t{SECRET}: x",
        f'auth: "{SECRET}',
        f"auth: @{SECRET}",
        f"auth: 'x' {SECRET}",
        f"auth: &a {SECRET}\n&a b: {{c",
    ],
)
def test_no_line_of_a_file_is_shown(tmp_path: Path, text: str) -> None:
    """PyYAML's message has the line of the error, and quotes words of it. Settings, kubeconfigs and pushes alike."""
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert SECRET not in str(refused.value)
    with pytest.raises(MalformedError) as malformed:
        parse_document(text)
    assert SECRET not in str(malformed.value)

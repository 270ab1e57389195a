"""docs/configuration.md lists every setting with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.support.process import REPOSITORY
from xds.app.settings import SETTINGS, load_settings
from xds.settings.setting_errors import section_kinds

PAGE = REPOSITORY / "docs" / "configuration.md"


def documented() -> dict[str, str]:
    """Default by setting, as the page shows them."""
    table = re.search(r"<!-- settings.*?-->\n(.*?)\n<!-- end of settings -->", PAGE.read_text(), re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", table[1], re.MULTILINE)
    assert len(rows) == len(table[1].splitlines()) - 2, "a row is not of the form of the others"
    return {setting: default.strip("`") for setting, default, _meaning in rows}


def settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    """Every setting below a section, with its default as the page spells it."""
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if kinds := section_kinds(field.annotation):
            yield path + name, _default(field)
            yield from _of_kinds(kinds, f"{path}{name}.NAME")
        elif section is not None and get_origin(field.annotation) is dict:
            yield path + name, _default(field)
            yield from settings(section, f"{path}{name}.NAME.")
        elif section is None:
            yield path + name, _default(field)
        elif isinstance(field.default, tuple):
            yield path + name, _default(field)
            yield from settings(section, f"{path}{name}[].")
        else:
            yield from settings(section, f"{path}{name}.")


def _of_kinds(kinds: dict[str, type[BaseModel]], path: str) -> Iterator[tuple[str, str]]:
    """What all kinds of a section have, and then what each kind has besides."""
    common = [kind.model_fields for kind in kinds.values()]
    shared = {name for name in common[0] if all(name in each and _is_same(name, each, common[0]) for each in common)}
    yield f"{path}.kind", "required"
    for kind, section in kinds.items():
        for name, default in settings(section, ""):
            if name != "kind":
                yield (f"{path}.{name}" if name in shared else f"{path}({kind}).{name}"), default


def _is_same(name: str, one: dict[str, FieldInfo], other: dict[str, FieldInfo]) -> bool:
    return _default(one[name]) == _default(other[name])


def _section(annotation: Any) -> type[BaseModel] | None:
    choices = get_args(annotation) or (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return str(list(value))
    if isinstance(value, int | float):
        return f"{value:.12g}"
    return "none" if value is None else str(value)


def test_every_setting_is_listed_with_its_default() -> None:
    assert documented() == dict(settings(SETTINGS))


def test_the_file_of_the_page_is_accepted(tmp_path: Path) -> None:
    example = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert example is not None
    file = tmp_path / "xds.yaml"
    file.write_text(example[1])
    loaded = load_settings(file)
    assert str(loaded.server.grpc.host) == yaml.safe_load(example[1])["server"]["grpc"]["host"]
    assert [token.name for token in loaded.auth.tokens] == ["ci"]

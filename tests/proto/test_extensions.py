"""The list of Envoy's extensions is that of the present Envoy, and says what it says."""

from __future__ import annotations

from tools.proto import generate
from xds.proto.extensions import PATH, categories, categories_of, encode

HTTP = "envoy.extensions.filters.http"


def test_the_list_is_that_of_the_running_envoy() -> None:
    assert generate.stale_files(generate.list_extensions()) == []


def test_a_type_may_have_several_categories_or_none() -> None:
    assert categories_of(f"{HTTP}.cors.v3.Cors") == {"envoy.filters.http"}
    assert categories_of(f"{HTTP}.lua.v3.LuaPerRoute") >= {"envoy.filters.http"}
    assert categories_of(f"{HTTP}.buffer.v3.Buffer") == {"envoy.filters.http", "envoy.filters.http.upstream"}
    assert categories_of("xds.type.v3.TypedStruct") == set()
    assert categories_of("com.example.Custom") == set()


def test_the_file_has_one_category_a_line() -> None:
    lines = PATH.read_text().splitlines()
    assert len(lines) == len(categories()) + 2
    assert (
        encode("e 1", {"b": {"z", "y"}, "a": {"x"}})
        == b'{"source":"e 1","categories":{\n"a":["x"],\n"b":["y","z"]\n}}\n'
    )

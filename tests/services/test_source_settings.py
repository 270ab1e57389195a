"""The settings of sources: kinds, names, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from xds.app.settings import load_settings
from xds.services.settings import source_table
from xds.services.source_builders import build_sources
from xds.services.source_settings import Secret, SourceSettings, split_server
from xds.services.sources.dns_source import DnsSource
from xds.services.sources.file_source import FilesSource
from xds.settings.setting_errors import explain_setting
from xds.settings.settings import SettingsError, shown_settings

EVERYTHING = """
sources:
  targets:
    kind: files
    paths: [/etc/targets, "/srv/*.json"]
  names:
    kind: dns
    servers: ["10.0.0.2", "[2001:db8::1]:5353"]
    services:
      web: {name: web.example.org, type: address, port: 80, family: both}
      api: {name: _api._tcp.example.org}
    changes_per_s: 10
"""


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "xds.yaml"
    path.write_text(text)
    return path


def test_sources_are_built_by_kind_and_name(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, EVERYTHING))
    built = [
        (source.name, source.kind, type(source), section.changes_per_s) for source, section in build_sources(settings)
    ]
    assert built == [("names", "dns", DnsSource, 10), ("targets", "files", FilesSource, 1_000)]
    assert not source_table(load_settings())


def test_a_source_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_SOURCES__WEB__KIND", "files")
    monkeypatch.setenv("XDS_SOURCES__WEB__PATHS", '["/etc/targets"]')
    (source,) = source_table(load_settings()).values()
    assert (source.kind, source.retry_s) == ("files", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{web: {kind: file}}", "sources.web.kind: 'file' is not a kind of source; did you mean 'files'?"),
        ("{web: {paths: [a]}}", "sources.web.kind: Field required (one of files, "),
        ("{web: {kind: files}}", "sources.web.paths: Field required"),
        ("{web: {kind: files, paths: []}}", "sources.web.paths: Tuple should have at least 1 item"),
        ("{web: {kind: files, paths: [a], path: b}}", "sources.web.path: unknown setting; did you mean 'paths'?"),
        ("{web: {kind: files, paths: [a], retry_s: 70}}", "longest_retry_s must be at least retry_s"),
        ("{web: {kind: files, paths: [a], changes_per_s: 0}}", "sources.web.changes_per_s: Input should be greater"),
        ("{Web: {kind: files, paths: [a]}}", "sources.Web: String should match pattern"),
        ("{registration: {kind: files, paths: [a]}}", "sources.registration: "),
        ("{web: 3}", "sources.web: "),
        ("[web]", "sources: Input should be a valid dictionary"),
        ("{d: {kind: dns, services: {}}}", "sources.d.services: Dictionary should have at least 1 item"),
        ("{d: {kind: dns, services: {a b: {name: x}}}}", "sources.d.services.a b: 'a b' is not a valid service name"),
        ("{d: {kind: dns, services: {a: {name: x, port: 1}}}}", "sources.d.services.a: SRV records have"),
        ("{d: {kind: dns, services: {a: {name: x, type: address}}}}", "address needs a port"),
        ("{d: {kind: dns, services: {a: {name: x, typ: srv}}}}", "sources.d.services.a.typ: unknown setting; did you"),
        ("{d: {kind: dns, servers: [ns.test], services: {a: {name: x}}}}", "sources.d.servers.0: "),
        ("{d: {kind: dns, servers: ['1.1.1.1:0'], services: {a: {name: x}}}}", "sources.d.servers.0: "),
        ("{d: {kind: dns, shortest_s: 400, services: {a: {name: x}}}}", "longest_s must be at least shortest_s"),
        ("{mine: {kind: python, object: mine}}", "sources.mine.object: expected module:factory"),
    ],
)
def test_errors_name_the_path_as_written(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(config(tmp_path, f"sources: {text}"))
    assert message in str(raised.value)


def test_an_invalid_name_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, "sources: {d: {kind: dns, services: {a: {name: 'a..b'}}}}"))
    with pytest.raises(SettingsError, match=r"sources\.d: 'a\.\.b' is not a DNS name"):
        list(build_sources(settings))


class Vault(SourceSettings):
    """A kind with a secret."""

    kind: Literal["vault"]
    token: Secret
    port: int = 1


class Root(BaseModel):
    """Settings with such a source."""

    sources: dict[str, Vault] = {}


def test_secrets_are_shown_nowhere() -> None:
    import pydantic

    for wrong in ({"token": ["hunter2"]}, {"token": "hunter2", "prot": 3}, {"tokn": "hunter2"}):
        with pytest.raises(pydantic.ValidationError) as raised:
            Root(sources={"v": {"kind": "vault", **wrong}})
        message = "\n".join(explain_setting(detail, Root) for detail in raised.value.errors())
        assert "sources.v" in message and "hunter2" not in message.replace("'tokn'", "")
    fine = Root(sources={"v": Vault(kind="vault", token="hunter2")})
    assert "hunter2" not in repr(fine) + json.dumps(fine.model_dump(mode="json"))
    assert fine.sources["v"].token.get_secret_value() == "hunter2"


def test_the_options_of_a_source_of_ones_own_are_not_shown(tmp_path: Path) -> None:
    text = "sources: {mine: {kind: python, object: 'a:b', options: {token: hunter2, url: http://x}}}"
    settings = load_settings(config(tmp_path, text))
    assert "hunter2" not in json.dumps(shown_settings(settings))
    assert shown_settings(settings)["sources"]["mine"]["options"].keys() == {"token", "url"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2", ("10.0.0.2", 53)),
        ("10.0.0.2:5353", ("10.0.0.2", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", ("2001:db8::1", 5353)),
    ],
)
def test_addresses_of_servers(text: str, expected: tuple[str, int]) -> None:
    assert split_server(text) == expected

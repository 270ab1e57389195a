"""``xds context``: a context applies as a whole, and gives no credential to a server that something else names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.support.commands import FinishedCommand, xds

UNREACHABLE = "http://127.0.0.1:1"


class User:
    """A user with a configuration directory."""

    def __init__(self, directory: Path) -> None:
        self._environment = {"XDG_CONFIG_HOME": str(directory), "XDS_ADDR": "", "XDS_CONTEXT": ""}
        self.file = directory / "xds" / "config.toml"

    def xds(self, *arguments: str | Path, **environment: str) -> FinishedCommand:
        return xds(*arguments, environment={**self._environment, **environment})


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "home")


def test_the_first_context_is_used_until_another_is(user: User, remote: Remote) -> None:
    here = f"http://127.0.0.1:{remote.server.http_port}"
    assert user.xds("context", "set", "here", "--server", here).code == 0
    assert user.xds("context", "set", "away", "--server", UNREACHABLE).code == 0
    assert user.xds("whoami").code == 0
    assert user.xds("context", "use", "away").code == 0
    assert user.xds("whoami").code == 7
    assert user.xds("whoami", "--context", "here").code == 0
    assert user.xds("whoami", XDS_CONTEXT="here").code == 0
    listed = user.xds("context", "list", "-o", "json").out
    assert '"current": true' in listed
    assert user.xds("context", "delete", "away").code == 0
    assert user.xds("context", "list", "-o", "name").out == "here\n"


def test_a_server_that_is_named_gets_no_credential_of_a_context(user: User, remote: Remote, tmp_path: Path) -> None:
    """The token's file is not there: whoever reads it fails."""
    token = tmp_path / "absent"
    user.xds("context", "set", "prod", "--server", UNREACHABLE, "--token-file", token)
    here = f"http://127.0.0.1:{remote.server.http_port}"
    assert user.xds("whoami", "--server", here).code == 0
    assert user.xds("whoami", XDS_ADDR=here).code == 0
    both = user.xds("whoami", "--server", here, "--context", "prod")
    assert (both.code, "give one of them" in both.err) == (2, True)
    assert user.xds("whoami", "--context", "prod", XDS_ADDR=here).code != 0


def test_only_the_user_may_read_the_file_and_it_holds_no_token(user: User, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("very secret")
    user.xds("context", "set", 'a "b" \\c', "--server", UNREACHABLE, "--token-file", token)
    assert user.file.stat().st_mode & 0o777 == 0o600
    assert "very secret" not in user.file.read_text()
    assert user.xds("context", "list", "-o", "name").out == 'a "b" \\c\n'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("current = [", "config.toml"),
        ("[contexts.a]\nserver = 1", "contexts.a"),
        ("[contexts.a]\nsever = 'x'", "contexts.a.sever"),
        ("contexts = 1", "contexts.NAME"),
    ],
)
def test_an_error_in_the_contexts_file_is_named(user: User, text: str, place: str) -> None:
    user.file.parent.mkdir(parents=True)
    user.file.write_text(text)
    found = user.xds("whoami")
    assert (found.code, place in found.err) == (2, True), found.err


def test_unknown_and_incomplete_contexts(user: User) -> None:
    assert "xds context set" in user.xds("whoami", "--context", "none").err
    assert user.xds("context", "set", "a").code == 2
    assert user.xds("context", "use", "a").code == 2
    assert "no contexts" in user.xds("context", "list").err

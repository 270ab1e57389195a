"""The admin API for commands: its errors are those of the command line, with exit codes and the names of options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from xds.calls import access
from xds.calls.access import QUIET_S, TIMEOUT_S, ServerAccess
from xds.calls.call import Answer, ApiCall, missing_servers, next_page
from xds.calls.failures import UnreachableServerError
from xds.calls.sender import BlockingSender, LongAnswer
from xds.cli.errors import CommandError, Exit
from xds.cli.missing_servers import note
from xds.model.node import DEFAULT_GROUP

Json = dict[str, Any]
T = TypeVar("T")

UPLOAD_TIMEOUT_S = 600.0
TEXT_LIMIT_BYTES = 200  # of an answer that is no problem document, such as that of a TLS port to plain HTTP

# Where an argument of a command stands in a request: what the server says of it is a usage error.
_ARGUMENT_PLACES = frozenset({"query", "path", "header"})
_EXITS = {
    400: Exit.INVALID,
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    410: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    413: Exit.INVALID,
    415: Exit.INVALID,
    422: Exit.INVALID,
    428: Exit.CONFLICT,
}
# The options of the command line for parameters of the API that an error names as its override.
_OPTION_HINTS = {
    "allow_empty": "pass --allow-empty to do it anyway",
    "retry": "pass --retry to push it again",
    "force": "pass --force to do it anyway",
    "if_match": "pass --if-match with the revision that you expect, or 0: it must not exist",
}
_CREDENTIAL_HINTS = {
    "cacert": f"; --cacert FILE or {access.CA_VARIABLE} names the authorities to trust",
    "cert": "; the server may ask for a client certificate: --cert, --key",
}


class RefusedError(CommandError):
    """The server refused a request. ``status`` is the HTTP status; ``problem`` is the RFC 9457 body, or empty.

    ``is_read``: the request has no content, so what is invalid is an argument.
    """

    def __init__(self, status: int, message: str, problem: Json, *, is_read: bool = False) -> None:
        # 5xx and 429 are not about the request: the server cannot answer at the moment.
        code = _EXITS.get(status, Exit.UNREACHABLE)
        is_usage = code is Exit.INVALID and (is_read or _is_about_arguments(status, problem))
        super().__init__(Exit.USAGE if is_usage else code, message)
        self.status = status
        self.problem = problem

    def with_findings(self, findings: Sequence[Json]) -> RefusedError:
        """The same refusal with these findings."""
        problem = {**self.problem, "errors": findings}
        return RefusedError(self.status, problem_text(problem) or str(self), problem)


def _is_about_arguments(status: int, problem: Json) -> bool:
    """Whether a problem is about parameters or headers. Findings about content have a place in it, or none."""
    errors = problem.get("errors", [])
    if not errors:
        return status == HTTPStatus.BAD_REQUEST  # findings about content are listed
    return all(each.get("source") in _ARGUMENT_PLACES for each in errors)


class Client:
    """The admin API of one server. Errors become ``CommandError``. Empty arguments are taken from the environment."""

    def __init__(
        self,
        server: str = "",
        token_file: Path | None = None,
        cacert: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        with _usage_errors():
            self._access = ServerAccess(server, "", token_file or "", cacert or "", cert or "", key or "")
            self._sender = BlockingSender(self._access)

    @property
    def server(self) -> str:
        """The URL of the server."""
        return self._access.url

    @property
    def host(self) -> str:
        """The host of the server; IPv6 addresses have brackets."""
        return f"[{self._access.host}]" if ":" in self._access.host else self._access.host

    def run(self, call: ApiCall[Any], page: str = "") -> Json:
        """Send one call; returns the JSON of the answer. Raises ``CommandError`` unless the request succeeds."""
        document = document_of(self.fetch(call, page))
        note(f"{call.method} {call.path} {page}", missing_servers(document))
        return document

    def find(self, call: ApiCall[Any]) -> Json | None:
        """As ``run``; None if what is asked for does not exist."""
        try:
            return self.run(call)
        except RefusedError as error:
            if error.code is not Exit.NOT_FOUND:
                raise
        return None

    def fetch(self, call: ApiCall[Any], page: str = "") -> Answer:
        """Send one call; ``page`` is the token of a page. Raises as ``run``."""
        return self._fetch(self._sender, call, page)

    def items(self, call: ApiCall[Any]) -> Iterator[Json]:
        """All items of a list, page by page."""
        page, is_last = "", False
        while not is_last:
            document = self.run(call, page)
            yield from document["items"]
            page = next_page(document)
            is_last = not page

    def lines(self, call: ApiCall[Any], on_headers: Callable[[Mapping[str, str]], None]) -> Iterator[str]:
        """The lines of an endless answer as they arrive. Ends when the server ends the answer.

        ``on_headers`` is called with the headers of the answer; their names are in lower case. Raises ``CommandError``,
        also if nothing arrives for ``QUIET_S``.
        """
        with self._begun(call, QUIET_S) as answer:
            on_headers(answer.headers)
            yield from self._reading(answer.lines())

    def download(self, call: ApiCall[Any], on_piece: Callable[[bytes], object]) -> None:
        """An answer that is too large for memory; ``on_piece`` is called with each piece. Raises as ``run``."""
        with self._begun(call, TIMEOUT_S) as answer:
            for piece in self._reading(answer.pieces()):
                on_piece(piece)

    def upload(self, call: ApiCall[Any]) -> Json:
        """Send a call with a file, with a longer timeout; returns the JSON of the answer. Raises as ``run``."""
        sender = BlockingSender(self._access, UPLOAD_TIMEOUT_S)
        answer = self._fetch(sender, call)
        sender.close()
        return document_of(answer)

    def certificate(self) -> Mapping[str, Any]:
        """The certificate that the server presents, in the form of ``ssl``; empty without TLS."""
        with _connection_errors():
            return self._sender.certificate()

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        self._sender.close()

    @staticmethod
    def _fetch(sender: BlockingSender, call: ApiCall[Any], page: str = "") -> Answer:
        with _connection_errors():
            answer = sender.send(call, page)
        if not answer.is_success:
            raise _refused(answer, is_read=call.method == "GET")
        return answer

    @contextmanager
    def _begun(self, call: ApiCall[Any], quiet_s: float) -> Iterator[LongAnswer]:
        with _connection_errors(), self._sender.begun(call, quiet_s) as answer:
            if not answer.is_success:
                raise _refused(answer.whole(), is_read=True)
            yield answer

    @staticmethod
    def _reading(parts: Iterator[T]) -> Iterator[T]:
        with _connection_errors():
            yield from parts


def with_option_names(error: RefusedError, flags: Mapping[str, str]) -> RefusedError:
    """The refusal, with the options of a command instead of members of the body, by their names in ``flags``."""

    def named(finding: Json) -> Json:
        flag = flags.get("".join(str(finding.get("pointer")).split("/")[1:2]))
        return finding if flag is None else {**finding, "pointer": flag, "source": ""}

    findings = error.problem.get("errors", [])
    renamed = list(map(named, findings))
    return error if renamed == findings else error.with_findings(renamed)


def document_of(answer: Answer) -> Json:
    """The body. Raises ``CommandError`` if it is not a JSON object."""
    document = answer.document()
    if document is None:
        raise _not_ours("the answer is not a JSON object")
    return document


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None


@contextmanager
def _connection_errors() -> Iterator[None]:
    try:
        yield
    except UnreachableServerError as error:
        raise CommandError(Exit.UNREACHABLE, f"{error.args[0]}{_CREDENTIAL_HINTS.get(error.wants, '')}") from None


def read_token(file: Path | None) -> str:
    """The bearer token; empty if there is none. An option overrides the environment. Raises ``CommandError``."""
    with _usage_errors():
        return access.read_token("", file or "")


def read_token_file(file: Path) -> str:
    """The bearer token in a file. Raises ``CommandError``."""
    with _usage_errors():
        return access.read_token_file(file)


def group_option(group: str) -> str:
    """The option for this group, for messages that name a command; empty for the default group."""
    return "" if group == DEFAULT_GROUP else f" -g {group}"


def _not_ours(detail: str) -> CommandError:
    return CommandError(Exit.UNREACHABLE, f"this is not the admin API of an xDS server: {detail}")


def _refused(answer: Answer, *, is_read: bool) -> CommandError:
    problem = answer.document()
    if problem is None:
        line = answer.body[:TEXT_LIMIT_BYTES].decode("utf-8", "replace").partition("\n")[0].strip()
        message = f"{answer.status} {answer.reason}"
        if line.startswith("<"):
            return _not_ours(f"it answers {message}")
        return RefusedError(answer.status, f"{message}: {line}" if line else message, {}, is_read=is_read)
    return RefusedError(answer.status, problem_text(problem) or answer.reason, problem, is_read=is_read)


def problem_text(problem: Json) -> str:
    """The detail of a problem document, with the option of this command that resolves it."""
    lines = [finding_line(error) for error in problem.get("errors", [])]
    hint = _OPTION_HINTS.get(str(problem.get("override")))
    text = "\n".join(lines) or str((hint and problem.get("reason")) or problem.get("detail") or "")
    return f"{text}; {hint}" if hint else text


def finding_line(finding: Mapping[str, Any]) -> str:
    """One finding of the server on a line: place, detail and hint."""
    place = " ".join(part for part in (finding.get("source"), finding.get("resource"), finding.get("pointer")) if part)
    hint = f" ({finding['hint']})" if finding.get("hint") else ""
    return f"{place}: {finding.get('detail')}{hint}" if place else f"{finding.get('detail')}{hint}"

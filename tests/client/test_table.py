"""The table of calls against the description of the API: each operation has its call, and each call its operation."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.support.features import FEATURE_ROOMS
from xds.admin.models.reading import read_value
from xds.admin.models.writing import document_of
from xds.calls.call import ApiCall
from xds.calls.server import backup, restore
from xds.client.methods import Paged, Sent
from xds.client.table import Calls

ROOT = Path(__file__).parents[2]
Make = Callable[..., ApiCall[Any]]
# Metrics are for other programs than clients of the API; events are a method of each client.
UNCALLED = {("GET", "/metrics"), ("GET", "/api/v1/events")}
MORE: dict[str, Make] = {"backup": backup, "restore": restore}  # streams of bytes, for the command line

Operations = dict[tuple[str, str], dict[str, Any]]

# A value for each parameter that has no default, by its type; other types are lists and documents.
VALUES: dict[str, Any] = {"str": "a/b", "int": 7, "IO[bytes]": None}
NUMBERS = ("base", "revision", "limit", "admin_port", "priority")


def _calls() -> Iterator[tuple[str, Make]]:
    for name, method in vars(Calls).items():
        if isinstance(method, Sent | Paged):
            yield name, getattr(Calls, name)
    yield from MORE.items()


def _made(make: Make, *, all_options: bool = False) -> ApiCall[Any]:
    given: dict[str, Any] = {}
    for each in inspect.signature(make).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            given.update(_options(make, each.name) if all_options else {})
        elif each.default is each.empty:
            kind = str(each.annotation)
            given[each.name] = VALUES.get(kind, [] if kind.startswith(("Iterable", "Sequence")) else {"@type": "t"})
        elif all_options and each.default in ("", False, None) and "Mapping" not in str(each.annotation):
            is_number = each.name.endswith("_s") or each.name in NUMBERS
            given[each.name] = 2 if is_number else True if each.default is False else "text"
    return make(**given)


def _options(make: Make, name: str) -> dict[str, Any]:
    """The options that all writes with this TypedDict take."""
    hint = get_type_hints(make, include_extras=True, localns=_classes())[name]
    kinds = get_type_hints(hint.__args__[0])
    values: dict[Any, Any] = {bool: True, str: "text"}
    without = {"if_match"} if make is Calls.transact else set()  # each of its changes has one
    return {option: values.get(kind, 2.0) for option, kind in kinds.items() if option not in without}


def _classes() -> dict[str, Any]:
    """The classes of results, which calls import for types only."""
    found: dict[str, Any] = {}
    for file in (*(ROOT / "xds").glob("*/models/*.py"), *(ROOT / "xds").glob("*/models.py")):
        found.update(vars(import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))))
    return found


@pytest.fixture(scope="module")
def operations() -> Operations:
    paths = json.loads((ROOT / "api/openapi.json").read_text())["paths"]
    methods = ("get", "put", "post", "patch", "delete")
    return {(method.upper(), path): of[method] for path, of in paths.items() for method in methods if method in of}


def _operation_of(call: ApiCall[Any], operations: Operations) -> tuple[str, str]:
    """The operation that a request asks for: the one with the fewest parameters in its path."""
    fitting = [
        (method, path)
        for method, path in operations
        if method == call.method and re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path), call.path)
    ]
    return min(fitting, key=lambda each: each[1].count("{"))


def test_each_operation_has_a_call(operations: Operations) -> None:
    called = {_operation_of(_made(make), operations) for _, make in _calls()}
    called.add(_operation_of(_made(Calls.snapshot, all_options=True), operations))  # of a revision
    assert operations.keys() - called == UNCALLED


@pytest.mark.parametrize("name", [name for name, _ in _calls()])
def test_a_call_asks_for_what_its_operation_takes(name: str, operations: Operations) -> None:
    call = _made(dict(_calls())[name], all_options=True)
    operation = operations[_operation_of(call, operations)]
    taken = {each["name"].lower() for each in operation.get("parameters", ())}
    asked = {*call.query, *(each.lower() for each in call.headers)} - {"accept", "content-type", "content-length"}
    assert asked <= taken, f"{name}: {call.method} {call.path} takes no {asked - taken}"
    assert "requestBody" in operation or call.body is None, f"{name}: {call.method} {call.path} takes no body"


@pytest.mark.parametrize("room", ["xds.admin", *FEATURE_ROOMS])
def test_answers_are_read_as_the_classes_of_their_operations(room: str) -> None:
    recorded = json.loads((ROOT / room.replace(".", "/") / "example_answers.json").read_text())
    table = {name.lower(): each for name, each in vars(import_module(f"{room}.operations")).items()}
    read = {name: table[name].answer() for name in recorded.keys() & table.keys() if table[name].has_class}
    assert read
    for name, kind in read.items():
        answer = read_value(kind, recorded[name])
        assert read_value(kind, json.loads(json.dumps(document_of(answer)))) == answer, name
        unread = recorded[name].keys() - document_of(answer).keys()
        assert not {member for member in unread if recorded[name][member]}, name


def test_calls_ask_for_operations_of_the_table() -> None:
    """A path of the API stands in one place: routes serve it, and calls ask for it."""
    makers = [str(file.relative_to(ROOT)) for file in (ROOT / "xds").rglob("*.py") if "ApiCall(" in file.read_text()]
    assert makers == ["xds/calls/call.py"]

"""What Envoy takes we take, what Envoy refuses for its form we refuse: asked from a real Envoy."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.codec.lax_cases import LAX, PLAIN, REFUSED, STRICT
from tests.support.envoy import VALIDATE_TIMEOUT_S, envoy_binary
from tests.support.process import child_environment
from xds.codec.parse import LAX as LAX_CODE
from xds.codec.resources import DecodedPush, decode_document
from xds.model.errors import ValidationError
from xds.model.resource_type import CLUSTER

# How Envoy's message begins when its parser refuses; what breaks a rule of the proto is told otherwise.
FORM_REFUSALS = ("Unable to parse JSON as proto", "has unknown fields")
WORKERS = 2


def _decode(inside: str) -> DecodedPush:
    return decode_document(f'{{"resources":[{{"@type":"{CLUSTER}","name":"c",{inside}}}]}}', "json")


pytestmark = pytest.mark.xdist_group("lax")  # they share what Envoy says


@pytest.fixture(scope="module")
def envoy_refuses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What Envoy has against the form of each case, by name; nothing where it takes it."""
    directory = tmp_path_factory.mktemp("lax")
    taken = {**{name: lax for name, (lax, _) in LAX.items()}, **PLAIN, **STRICT}
    alone = [[each] for each in REFUSED.items()]
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = pool.map(
            lambda one: _refusals(directory / str(one[0]), one[1]), enumerate([[*taken.items()], *alone])
        )
        return {name: told for each in answers for name, told in each.items()}


def _refusals(path: Path, cases: list[tuple[str, str]]) -> dict[str, str]:
    """Envoy is asked about all cases at once, and where it refuses that, about each half."""
    clusters = ",".join(f'{{"name":"c{at}",{inside}}}' for at, (_, inside) in enumerate(cases))
    file = path.with_suffix(".json")
    file.write_text(f'{{"static_resources":{{"clusters":[{clusters}]}}}}')
    argv: list[str | Path] = [envoy_binary(), "--mode", "validate", "-c", file, "-l", "critical"]
    run = subprocess.run(argv, capture_output=True, timeout=VALIDATE_TIMEOUT_S, env=child_environment(), check=False)
    half = len(cases) // 2
    if run.returncode and half:
        return _refusals(path, cases[:half]) | _refusals(path, cases[half:])
    told = (run.stdout + run.stderr).decode(errors="replace")
    is_refused = run.returncode and any(words in told for words in FORM_REFUSALS)
    return {name: told if is_refused else "" for name, _ in cases}


@pytest.mark.parametrize("name", LAX)
def test_lenient_input_is_accepted_with_a_warning(name: str, envoy_refuses: dict[str, str]) -> None:
    lax, plain = LAX[name]
    assert not envoy_refuses[name]
    found = _decode(lax)
    assert found.resources == _decode(plain).resources
    assert {(one.code, one.severity, one.resource, one.index) for one in found.warnings} == {
        (LAX_CODE, "warning", "clusters/c", 0)
    }
    assert all(one.hint for one in found.warnings)


@pytest.mark.parametrize("name", PLAIN)
def test_strict_input_is_accepted_without_a_warning(name: str, envoy_refuses: dict[str, str]) -> None:
    assert not envoy_refuses[name]
    assert _decode(PLAIN[name]).warnings == ()


@pytest.mark.parametrize("name", REFUSED)
def test_input_that_envoy_rejects_is_refused(name: str, envoy_refuses: dict[str, str]) -> None:
    assert envoy_refuses[name]
    with pytest.raises(ValidationError):
        _decode(REFUSED[name])


@pytest.mark.parametrize("name", STRICT)
def test_input_where_the_codec_is_stricter_than_envoy(name: str, envoy_refuses: dict[str, str]) -> None:
    assert not envoy_refuses[name]
    with pytest.raises(ValidationError):
        _decode(STRICT[name])


def test_no_case_is_listed_twice() -> None:
    assert len({*LAX, *PLAIN, *REFUSED, *STRICT}) == len(LAX) + len(PLAIN) + len(REFUSED) + len(STRICT)

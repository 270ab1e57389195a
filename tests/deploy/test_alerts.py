"""The alert rules in Prometheus' own engine: promtool evaluates each of them over series of a time.

`tests/deploy/test_monitoring.py` compares the series with those of a running server.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.kubernetes import programs
from tests.deploy.alert_cases import CASES, SCRAPED, AlertCase, Series
from tests.support.process import REPOSITORY

Json = dict[str, Any]

FOLDER = REPOSITORY / "deploy" / "prometheus"
ALERTS = FOLDER / "alerts.yaml"
RUN_S = 200
EVALUATION_S = 15
LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def rules() -> dict[str, Json]:
    return {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {case.alert for case in CASES} == set(rules())
    assert all(case.silent for case in CASES)


@pytest.fixture(scope="module")
def promtool() -> Path:
    return programs.promtool()


soak = [pytest.mark.soak, pytest.mark.timeout(600), pytest.mark.xdist_group("promtool")]


def soaked(test: Any) -> Any:
    for mark in soak:
        test = mark(test)
    return test


@soaked
def test_prometheus_takes_the_configuration_and_the_rules(promtool: Path) -> None:
    checked = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", ALERTS)
    assert f"{len(rules())} rules found" in checked
    assert "SUCCESS" in run(promtool, "check", "config", FOLDER / "prometheus.yml")


@soaked
def test_each_alert_fires_when_it_should_and_no_sooner(promtool: Path, tmp_path: Path) -> None:
    run(promtool, "test", "rules", *written(tmp_path, ALERTS, CASES))


@soaked
@pytest.mark.parametrize("alert", sorted(rules()))
@pytest.mark.parametrize("expression", ["vector(1)", "vector(0) > 1"], ids=["always", "never"])
def test_an_alert_with_another_expression_is_found_out(
    alert: str, expression: str, promtool: Path, tmp_path: Path
) -> None:
    """Else the cases would hold for any rule."""
    document = yaml.safe_load(ALERTS.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == alert:
                rule["expr"] = expression
    changed = tmp_path / "alerts.yaml"
    changed.write_text(json.dumps(document))
    with pytest.raises(AssertionError, match=alert):
        run(promtool, "test", "rules", *written(tmp_path, changed, [case for case in CASES if case.alert == alert]))


def run(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def written(folder: Path, alerts: Path, cases: Sequence[AlertCase]) -> list[Path]:
    """The cases as files for promtool, one for each interval."""
    paths = []
    for interval in sorted({case.interval for case in cases}):
        chosen = [case for case in cases if case.interval == interval]
        tests = [test for case in chosen for test in examples_of(case, rules()[case.alert])]
        paths.append(folder / f"cases-{interval}.yaml")
        document = {"rule_files": [str(alerts)], "evaluation_interval": interval, "tests": tests}
        paths[-1].write_text(json.dumps(document))
    return paths


def examples_of(case: AlertCase, rule: Json) -> Iterator[Json]:
    """The alert at its time, not before its ``for`` is over, and never for the series that are to be silent."""
    fired = {"eval_time": case.after, "alertname": case.alert, "exp_alerts": [expected(case, rule)]}
    held_s = seconds(rule.get("for", "0s"))
    early = {"eval_time": f"{held_s - EVALUATION_S}s", "alertname": case.alert, "exp_alerts": []}
    yield example(case, f"{case.alert} fires", case.fires, [fired, *([early] if held_s else [])])
    for number, series in enumerate(case.silent, 1):
        silent = {"eval_time": case.after, "alertname": case.alert, "exp_alerts": []}
        yield example(case, f"{case.alert} is silent {number}", series, [silent])


def example(case: AlertCase, name: str, series: Series, looks: list[Json]) -> Json:
    given = [{"series": scraped(one), "values": values} for one, values in series.items()]
    return {"name": name, "interval": case.interval, "input_series": given, "alert_rule_test": looks}


def scraped(series: str) -> str:
    """The series with the labels that Prometheus adds."""
    name, _, labels = series.rstrip("}").partition("{")
    added = ",".join(f'{label}="{value}"' for label, value in SCRAPED.items())
    return f"{name}{{{labels + ',' if labels else ''}{added}}}"


def expected(case: AlertCase, rule: Json) -> Json:
    description = LABEL.sub(lambda found: case.labels[found[1]], rule["annotations"]["description"])
    return {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {"summary": case.summary, "description": description},
    }


def seconds(duration: str) -> int:
    units: Mapping[str, int] = {"s": 1, "m": 60, "h": 3_600}
    return int(duration[:-1]) * units[duration[-1]]

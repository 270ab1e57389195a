"""What findings call the resource they are about."""

from __future__ import annotations

from xds.codec.findings import Findings
from xds.model.resource_type import CLUSTER


def called(findings: Findings) -> tuple[str, int]:
    findings.add("wrong", "it is wrong")
    return findings.violations[-1].resource, findings.violations[-1].index


def test_a_resource_is_called_by_its_place_until_it_has_a_name() -> None:
    findings = Findings()
    assert called(findings) == ("", -1)
    findings.select_resource(3)
    assert called(findings) == ("resources[3]", 3)
    findings.name_resource(CLUSTER, "c1")
    assert called(findings) == ("clusters/c1", 3)
    findings.select_resource(4)
    assert called(findings) == ("resources[4]", 4)
    findings.name_resource("type.googleapis.com/my.Type", "a")
    assert called(findings) == ("my.Type/a", 4)


def test_findings_keep_their_resource_name() -> None:
    findings = Findings()
    findings.name_resource(CLUSTER, "c1")
    findings.warn("odd", "it is odd")
    findings.name_resource(CLUSTER, "c2")
    assert [one.resource for one in findings.warnings] == ["clusters/c1"]

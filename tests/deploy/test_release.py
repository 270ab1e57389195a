"""The workflow of a release: a tag makes one only if it names the version of the distribution."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.support.process import REPOSITORY, child_environment
from xds.version import __version__

WORKFLOW = REPOSITORY / ".github" / "workflows" / "release.yml"
CHECKLIST = REPOSITORY / "docs" / "internals" / "releasing.md"


def step_on_the_tag() -> str:
    """The command of the workflow that looks at the tag."""
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["build"]["steps"]
    (found,) = [step["run"] for step in steps if "GITHUB_REF_NAME" in step.get("run", "")]
    return str(found)


@pytest.mark.parametrize(("tag", "passes"), [(f"v{__version__}", True), ("v0.0.0", False), (__version__, False)])
def test_a_release_has_the_version_of_its_tag(tag: str, *, passes: bool) -> None:
    environment = child_environment({"GITHUB_REF_NAME": tag})
    ran = subprocess.run(["bash", "-e", "-c", step_on_the_tag()], cwd=REPOSITORY, env=environment, check=False)
    assert (ran.returncode == 0) is passes


def test_the_checklist_names_the_file_with_the_version() -> None:
    (path,) = re.findall(r"`__version__` in `([^`]+)`", CHECKLIST.read_text())
    assert f'__version__ = "{__version__}"' in (REPOSITORY / path).read_text()

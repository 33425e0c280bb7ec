"""Proves that both continuous integrations are well formed, and run what is run by hand.

Neither GitHub nor GitLab runs here.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import read_stages
from tests.documents import ROOT

CHECK = Path(sys.executable).with_name("check-jsonschema")
GITHUB = ROOT / ".github" / "workflows" / "ci.yml"
GITLAB = ROOT / ".gitlab-ci.yml"


def steps(workflow: dict[str, Any], job: str) -> str:
    return "\n".join(step.get("run", "") for step in workflow["jobs"][job]["steps"])


@pytest.mark.parametrize(
    "words",
    [
        ("--builtin-schema", "vendor.github-workflows", str(GITHUB)),
        ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(GITLAB)),
    ],
    ids=["github", "gitlab"],
)
def test_files_fit_their_schemas(words: tuple[str, ...]) -> None:
    outcome = subprocess.run([str(CHECK), *words], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stdout


def test_both_test_build_and_publish() -> None:
    workflow, pipeline = yaml.safe_load(GITHUB.read_text()), yaml.safe_load(GITLAB.read_text())
    assert pipeline["stages"] == ["test", "build", "publish"]
    assert set(pipeline["stages"]) <= workflow["jobs"].keys()
    # The whole history: an earlier commit is the version that is upgraded from.
    (checkout,) = [one for one in workflow["jobs"]["test"]["steps"] if "checkout" in str(one)]
    assert checkout["with"]["fetch-depth"] == 0
    assert pipeline["variables"]["GIT_DEPTH"] == "0"
    for script in (".ci/run", ".ci/build"):
        assert os.access(ROOT / script, os.X_OK)
        job = "test" if script == ".ci/run" else "build"
        assert script in steps(workflow, job).split()
        assert script in pipeline[job]["script"]


def test_only_tags_are_published_and_jobs_have_no_more_rights_than_they_need() -> None:
    workflow, pipeline = yaml.safe_load(GITHUB.read_text()), yaml.safe_load(GITLAB.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if name.startswith("publish"):
            assert "startsWith(github.ref, 'refs/tags/v')" in job["if"]
        else:
            assert "permissions" not in job
    for job in ("publish", "build-image"):
        assert pipeline[job]["rules"] == [{"if": "$CI_COMMIT_TAG"}]


def test_images_are_built_for_stages_that_exist() -> None:
    workflow, pipeline = yaml.safe_load(GITHUB.read_text()), yaml.safe_load(GITLAB.read_text())
    stages = read_stages(ROOT / "deploy" / "Dockerfile")
    github = workflow["jobs"]["publish-images"]["strategy"]["matrix"]["include"]
    gitlab = pipeline["build-image"]["parallel"]["matrix"]
    names = {one["target"]: one["name"] for one in github}
    assert names == {one["TARGET"]: one["NAME"] for one in gitlab}
    assert names.keys() <= stages.keys()

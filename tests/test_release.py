"""What a release consists of: workflows that call what exists, and metadata that agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def commands(workflow: Path) -> list[str]:
    """The shell commands of a workflow."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_calls_exists(workflow: Path):
    """Targets of the Makefile, and files of the project."""
    text = "\n".join(commands(workflow))
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= set(targets)
    files = re.findall(r"\b(?:tests|tools)/\w+\.py", text)
    assert [name for name in files if not (PROJECT / name).is_file()] == []


def test_tests_wheels_and_classifiers_name_the_same_versions_of_python():
    """The oldest is the one that the package asks for."""
    project = SETTINGS["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tests = yaml.safe_load((PROJECT / ".github/workflows/test.yml").read_text())
    assert tests["jobs"]["tests"]["strategy"]["matrix"]["python"] == named
    wheels = SETTINGS["tool"]["cibuildwheel"]["build"].split()
    assert wheels == [f"cp{version.replace('.', '')}-*" for version in named]
    assert project["requires-python"] == f">={named[0]}"


def test_no_extra_keeps_pandas_below_3():
    """PySpark 4.3 warns of pandas 3, and works with it."""
    extras: dict[str, Any] = SETTINGS["project"]["optional-dependencies"]
    assert extras["pandas"] == ["pandas>=2.2"]
    assert "pandas>=2.2" in extras["spark"]


def test_forms_and_settings_of_the_repository_can_be_read():
    """YAML that GitHub and pre-commit load."""
    files = [*PROJECT.glob(".github/**/*.yml"), PROJECT / ".pre-commit-config.yaml"]
    assert len(files) > len(WORKFLOWS)
    assert [str(file) for file in files if not yaml.safe_load(file.read_text())] == []


def test_what_packages_hold_besides_modules_is_in_wheels():
    """Files of a kind that package data does not name would be missing in an installed package."""
    patterns = SETTINGS["tool"]["setuptools"]["package-data"]["*"]
    compiled = {".py", ".pyc", ".so", ".pyd", ".pyx", ".pxi", ".pxd", ".h", ".c"}
    files = [
        file
        for package in ("fermion", "fermion_table", "spark_ext")
        for file in (PROJECT / package).rglob("*")
        if file.is_file() and file.suffix not in compiled
    ]
    assert {file.suffix for file in files} >= {".js", ".css"}
    assert [str(file) for file in files if not any(map(file.match, patterns))] == []


def test_what_is_published_holds_the_jar_of_flink():
    """It is built first; each build gets it where package data names it, and is tried with it."""
    workflow = PROJECT / ".github/workflows/wheels.yml"
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    for name in ("wheels", "tried", "source"):
        assert jobs[name]["needs"] == "jar"
        assert {"name": "jar", "path": "flink_ext"} in [
            step.get("with") for step in jobs[name]["steps"]
        ]
    tried = "python -m flink_ext.jar"
    assert tried in "\n".join(commands(workflow))
    assert SETTINGS["tool"]["cibuildwheel"]["test-command"].endswith(tried)
    (jar,) = SETTINGS["tool"]["setuptools"]["package-data"]["flink_ext"]
    assert jobs["jar"]["steps"][-1]["with"]["path"] == f"flink_ext/{jar}"

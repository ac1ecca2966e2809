"""Fixtures of the acceptance tests, which use the project as its users do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project_environment(project: Path) -> dict[str, str]:
    """The environment of a child interpreter that imports this checkout, installed or not."""
    environment = dict(os.environ)
    paths = [str(project), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment

"""The programs in examples, and what they need."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ON_CI

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDED = {"tpch.py": "tpchgen-cli"}
LIBRARIES = {"train_model.py": "torch"}
"""What is installed for `make test-recipes` alone."""
PROGRAMS = sorted(file.name for file in EXAMPLES.glob("*.py"))
WITH_SPARK = [name for name in PROGRAMS if "pyspark" in (EXAMPLES / name).read_text()]
SHARING_A_SESSION = [name for name in WITH_SPARK if name != "quickstart.py"]


def require(program: str | None) -> None:
    """Skip, but not on CI, where an optional program of the example is missing."""
    if program is None or Path(sys.executable).with_name(program).exists():
        return
    if shutil.which(program) is None:
        (pytest.fail if ON_CI else pytest.skip)(f"{program} is not installed (group dev)")

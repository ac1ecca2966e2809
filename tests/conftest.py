"""Fixtures and Hypothesis profiles that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parent.parent
ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Examples are random in every profile, so that each run looks somewhere new; the blob that is
# printed with a failure repeats it (`@reproduce_failure`). Deadlines measure the neighbours on a
# shared machine rather than the code.
settings.register_profile(
    "ci",
    max_examples=40,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=100)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if ON_CI else "dev"))


@pytest.fixture(scope="session")
def project() -> Path:
    """The directory of the checkout, where pyproject.toml lies."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real data files written by other programs.

    A folder per origin (`parquet-testing`, `arrow-testing`, `babynames`, ...). It is not part of
    the project: it is taken from the environment variable FERMION_TEST_DATA, else from
    `../shared/data` beside the project. Without it the tests that need it fail on CI, where a
    skip would hide them, and are skipped elsewhere.
    """
    named = os.environ.get("FERMION_TEST_DATA")
    directory = Path(named) if named else PROJECT.parent / "shared" / "data"
    if not directory.is_dir():
        reason = (
            f"no test data at {directory}: set FERMION_TEST_DATA to a directory that holds "
            "parquet-testing, arrow-testing, ... (the files of those public repositories)"
        )
        if ON_CI or named:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return directory


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """A path in a fresh directory where no table exists yet."""
    return tmp_path / "table"

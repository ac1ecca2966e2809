"""Every example runs, and its data is what its origin gave.

Those that share the tests' Spark session run in tests/claims/spark_ext/test_examples.py.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from tests.kit.examples import (
    EXAMPLES,
    LIBRARIES,
    NEEDED,
    PROGRAMS,
    SHARING_A_SESSION,
    WITH_SPARK,
    require,
)

DATA = EXAMPLES / "data"


def marks(name):
    """A JVM for each is long: of those with Spark one is a program of its own in short runs."""
    if name in SHARING_A_SESSION:
        return [pytest.mark.spark, pytest.mark.slow]
    return [pytest.mark.spark] if name in WITH_SPARK else []


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in PROGRAMS])
def test_the_example_runs_and_finds_nothing_wrong(name, tmp_path, project_environment):
    """Each takes a directory for what it makes, and exits with 0 when all its checks hold."""
    require(NEEDED.get(name))
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name], reason=f"{name} runs in make test-recipes")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(tmp_path / "made")],
        cwd=tmp_path,
        env=project_environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout


def test_there_is_a_quickstart():
    assert "quickstart.py" in WITH_SPARK


def test_the_data_of_the_examples_has_the_checksums_written_beside_it():
    lines = (DATA / "SHA256SUMS").read_text().splitlines()
    stated = {name: digest for digest, name in (line.split() for line in lines)}
    found = {
        file.relative_to(DATA).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in DATA.glob("*/*")
    }
    assert len(found) == 30
    assert found == stated

"""Fixtures and Hypothesis profiles that every test may use."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.ceph.cluster import BUCKET
from tools.ceph.cluster import Cluster as CephCluster
from tools.chromium.browser import Browser
from tools.hdfs.cluster import Cluster as HdfsCluster
from tools.servers import NotAvailableError
from tools.spark_classes import driver_options

pytest.register_assert_rewrite("tests.kit")  # so that a failure shows the values, as in a test
pytest_plugins = ("tests.kit.spark_fixtures", "tests.kit.table_fixtures")

PROJECT = Path(__file__).resolve().parent.parent
# A folder per origin (`parquet-testing`, `arrow-testing`, ...); not part of the project.
SHARED_DATA = Path(os.environ.get("FERMION_TEST_DATA") or PROJECT.parent / "shared" / "data")
ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# By default every run takes the same examples, so that only a change to the code can make it fail.
# `dev` and the long runs look somewhere new each time; the blob that is printed with a failure
# repeats it (`@reproduce_failure`). Deadlines would measure the other processes of the machine.
settings.register_profile(
    "ci",
    max_examples=40,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=100, derandomize=False)
settings.register_profile("acceptance", settings.get_profile("dev"), max_examples=2_000)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# For every driver's JVM, also those of programs that tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", driver_options())


# Tests start some hundred interpreters, Spark's Python workers above all. Where the environment
# forbids to keep compiled files, each of them would compile the project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _without_waiting(descriptor: int) -> None:
    """`os.fsync` in this process: no test turns the power off, and each commit waits for several.

    A wrong descriptor is an error still. Processes that tests start wait for the disk.
    """
    os.fstat(descriptor)


os.fsync = _without_waiting


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: collections of garbage, of which tests make hundreds,
    need not look at them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def project() -> Path:
    """The directory of the checkout, where pyproject.toml lies."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real data files that other programs wrote.

    Without it the tests that need it fail on CI, and wherever FERMION_TEST_DATA names a directory,
    as a skip would hide them there; elsewhere they are skipped.
    """
    if not SHARED_DATA.is_dir():
        reason = (
            f"no test data at {SHARED_DATA}: set FERMION_TEST_DATA to a directory that holds "
            "parquet-testing, arrow-testing, ... (the files of those public repositories)"
        )
        if ON_CI or "FERMION_TEST_DATA" in os.environ:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return SHARED_DATA


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """A path in a fresh directory where no table exists yet."""
    return tmp_path / "table"


@pytest.fixture(scope="session")
def project_environment(project: Path) -> dict[str, str]:
    """The environment of a child interpreter that imports this checkout, installed or not."""
    environment = dict(os.environ)
    paths = [str(project), environment.get("PYTHONPATH", "")]
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A NameNode and three DataNodes on the loopback interface; skipped where they can't be had."""
    pytest.importorskip("hdfs_native", reason="the extra hdfs brings hdfs-native")
    with ExitStack() as running:
        try:
            cluster = running.enter_context(
                HdfsCluster(tmp_path_factory.mktemp("hdfs") / "cluster")
            )
        except NotAvailableError as error:
            pytest.skip(f"no HDFS: {error}")
        yield cluster


@pytest.fixture
def hdfs_folder(hdfs_cluster: HdfsCluster, request: pytest.FixtureRequest) -> str:
    """The URL of a folder of its own, on a cluster with all of its servers."""
    hdfs_cluster.repair()
    return f"{hdfs_cluster.url}/{request.node.name.replace('[', '-').rstrip(']')}"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; skipped where it can't be had."""
    with ExitStack() as running:
        try:
            found = running.enter_context(Browser())
        except NotAvailableError as error:
            pytest.skip(f"no browser: {error}")
        yield found


@pytest.fixture(scope="session")
def ceph_cluster() -> Iterator[CephCluster]:
    """Ceph with its gateway on the loopback interface; skipped where it can't be had."""
    for module in ("s3fs", "boto3"):
        pytest.importorskip(module, reason="the extra s3 and the group dev bring s3fs and boto3")
    with ExitStack() as running:
        # Of a short path, as sockets lie in it.
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="ceph-")))
        try:
            cluster = running.enter_context(CephCluster(folder / "cluster"))
        except NotAvailableError as error:
            pytest.skip(f"no Ceph: {error}")
        cluster.s3().create_bucket(Bucket=BUCKET)
        yield cluster


@pytest.fixture
def ceph_folder(ceph_cluster: CephCluster, request: pytest.FixtureRequest) -> str:
    """The URL of a folder of its own, on a cluster whose gateway runs."""
    ceph_cluster.repair()
    return f"s3://{BUCKET}/{request.node.name.replace('[', '-').rstrip(']')}"

"""Clients that others wrote, in languages of their own, ask a server of `fermion serve`.

ADBC, which is written in Go and called from Python, asks it in tests/fermion_table/serving.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fermion_table.serving.conftest import TOKEN, Server, make_catalog
from tests.kit.documents import PROJECT
from tools.maven import file_of_maven
from tools.servers import NotAvailableError

HERE = Path(__file__).parent
DRIVER = "org/apache/arrow/flight-sql-jdbc-driver/18.3.0/flight-sql-jdbc-driver-18.3.0.jar"
DRIVER_SHA256 = "3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c"
SECONDS_MAX = 500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(make_catalog(tmp_path_factory.mktemp("clients") / "warehouse"))
    yield made
    made.server.stop()


def jdbc(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program of Java, which the JDK compiles as it starts."""
    if shutil.which("javac") is None:
        pytest.skip("there is no compiler of Java (Debian and Ubuntu: openjdk-17-jdk-headless)")
    try:
        driver = file_of_maven(DRIVER, DRIVER_SHA256, PROJECT / "build" / "jdbc")
    except NotAvailableError as error:
        pytest.skip(f"no JDBC driver: {error}")
    options = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", str(driver)]
    program = [str(HERE / "java" / "Jdbc.java"), str(server.server.port), TOKEN, *arguments]
    return subprocess.run(
        ["java", *options, *program],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.services
def test_jdbc_lists_and_queries_tables(server: Server) -> None:
    """Every question of DatabaseMetaData has an answer, and no memory is left at the end."""
    done = jdbc(server)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "product Fermion",
        "catalog fermion",
        "table db a.b",
        "table db events",
        "table db.deep.er users",
        "table main top",
        "column id BIGINT",
        "column kind VARCHAR",
        "key id",
        "row close 250",
        "row open 250",
        "row read 500",
        "prepared 4 1",
        "prepared 4 3",
        "prepared 9 1",
        "prepared 9 3",
        "prepared 9 5",
        'error Error while executing SQL "SELECT nope FROM db.events": sql: Binder Error: '
        'Referenced column "nope" not found in FROM clause! Candidate bindings: "id". Detail: '
        "Failed",
        'error Error while executing SQL "DROP TABLE db.events": sql: expected a query, which only '
        "reads, found DROP: fermion_table.drop_table(path) drops a table. Detail: Failed",
        "password true",
        "refused true",
    ]
    assert "leaked" not in done.stderr


@pytest.mark.services
def test_jdbc_says_that_memory_leaked_where_a_result_of_metadata_stays_open(server: Server) -> None:
    """As the guide says: the driver closes results of statements with them, but not these."""
    done = jdbc(server, "leave")
    assert done.returncode != 0
    assert "Memory was leaked by query" in done.stderr


@pytest.mark.slow
def test_go_lists_and_queries_tables(server: Server, tmp_path: Path) -> None:
    """With Arrow's own library, which is downloaded and compiled: minutes, the first time."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    build, program = PROJECT / "build" / "go", str(tmp_path / "client")
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOCACHE": str(build)}
    try:
        subprocess.run([go, "mod", "download"], cwd=HERE / "go", check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Go's modules can't be downloaded: {error.stderr.decode()[-500:]}")
    subprocess.run([go, "build", "-o", program, "."], cwd=HERE / "go", check=True, env=environment)
    address = f"127.0.0.1:{server.server.port}"
    done = subprocess.run(
        [program, address, TOKEN], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "without token: true"
    assert [line.split('"table_name":')[1] for line in lines[1:5]] == [
        f'"{name}","table_type":"TABLE"}}' for name in ("a.b", "events", "users", "top")
    ]
    assert lines[5:9] == [
        'row {"kind":"close","n":250}',
        'row {"kind":"open","n":250}',
        'row {"kind":"read","n":500}',
        'prepared {"n":10}',
    ]
    assert "found DROP" in lines[9]

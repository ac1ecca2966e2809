"""`fermion serve`: a program of its own, from its first line to SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow.flight
import pytest

from fermion.cli import main
from fermion_table import Catalog
from fermion_table.serving.messages import written
from tests.kit.documents import DOCS, PROJECT
from tests.kit.page_runner import PROGRAM, run_page


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    catalog = Catalog.open(tmp_path / "warehouse", durability="fast")
    catalog.create_table("db.events", data={"id": [1, 2, 3]})
    return tmp_path / "warehouse"


@contextmanager
def serving(warehouse: Path, *arguments: str) -> Iterator[tuple[Any, list[str]]]:
    """The process, and its first lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", str(warehouse), "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    )
    try:
        assert process.stdout is not None
        yield process, [process.stdout.readline().rstrip("\n") for _ in range(3)]
    finally:
        process.kill()
        process.communicate()


def ask(lines: list[str], token: str) -> Any:
    uri = lines[1].removeprefix("listening at ")
    header = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    with (
        flight_sql.connect(uri, db_kwargs=header, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT sum(id) FROM db.events")
        return cursor.fetchone()[0]


def test_a_server_prints_its_token_answers_and_ends_at_sigterm(warehouse: Path) -> None:
    """The log goes to standard error, and no log and no argument has the token."""
    with serving(warehouse) as (process, lines):
        assert lines[0] == f"1 table of '{warehouse}'"
        token = lines[2].removeprefix("token: ")
        assert len(token) >= 43
        assert ask(lines, token) == 6
        with pytest.raises(flight_sql.Error, match="expected the server's token"):
            ask(lines, "another")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out == "stopping\n"
        assert "done, 1 rows" in err
        assert token not in err


def test_a_server_with_a_token_file_makes_it_and_reads_it_the_next_time(warehouse: Path) -> None:
    path = warehouse.parent / "token"
    for note in (", made now", ""):
        with serving(warehouse, "--token-file", str(path)) as (process, lines):
            assert lines[2] == f"token: in {path}{note}"
            assert path.stat().st_mode & 0o777 == 0o600
            assert ask(lines, path.read_text().strip()) == 6
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def test_a_client_that_reads_no_further_does_not_keep_the_server(warehouse: Path) -> None:
    """It holds a call open, with rows that it does not take."""
    with serving(warehouse, "--no-token", "--grace", "0.1") as (process, lines):
        assert lines[2].startswith("no token")
        client = pyarrow.flight.connect(lines[1].removeprefix("listening at "))
        command = written("CommandStatementQuery", query="SELECT range FROM range(100000000000)")
        info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        with pytest.raises((OSError, pyarrow.flight.FlightError)):
            for _ in reader:
                pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "others could read along: expected --tls-cert and --tls-key"),
        (["--host", "0.0.0.0", "--no-tls", "--no-token"], "--no-token: is for a loopback address"),
        (["--no-token", "--token-file", "t"], "goes without --token-file"),
        (["--tls-cert", "c.pem"], "expected --tls-cert and --tls-key together"),
        (["--tls-cert", "c", "--tls-key", "k", "--no-tls"], "together, without --no-tls"),
        (["--tls-cert", "junk", "--tls-key", "junk"], "junk: expected PEM with a CERTIFICATE"),
        (["--max-seconds", "0"], "--max-seconds 0.0: expected"),
        (["--max-seconds", "nan"], "--max-seconds nan: expected"),
        (["--max-queries", "0"], "--max-queries 0: expected 1 or more"),
        (["--max-rows", "-1"], "--max-rows -1: expected 1 or more"),
        (["--max-memory", "lots"], "memory='lots': expected a size, such as 1GB"),
        (["--grace", "-1"], "--grace -1.0: expected 0 or more"),
        (["--port", "65536"], "--port 65536: expected 0 to 65535"),
        (["--port", "x"], "invalid int value"),
        (["--token-file", "junk"], "junk: expected a file that only its owner may read"),
    ],
)
def test_wrong_usage_says_what_is_expected(
    warehouse: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(warehouse.parent)
    Path("junk").write_text("junk")
    os.chmod("junk", 0o644)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["serve", str(warehouse), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
    assert not Path("t").exists()


def test_an_address_that_is_taken_is_an_error_of_one_line(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(warehouse) as (_, lines):
        port = lines[1].rpartition(":")[2]
        assert main(["serve", str(warehouse), "--port", port]) == 1
        error = capsys.readouterr().err
        assert port in error
        assert error.count("\n") == 1


def test_the_code_of_the_page_about_servers_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a port that is free here."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run_page(DOCS / "guide/serve.md", tmp_path, monkeypatch, replaced={"31337": str(port)})

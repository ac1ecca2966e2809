"""The server of Flight SQL, asked by ADBC: answers, errors, who may ask, and the end."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
import pyarrow.flight
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Catalog
from fermion_table.serving.messages import bare, written
from tests.fermion_table.serving.conftest import ENDLESS, EVENTS, TOKEN, Server
from tests.kit.arrow_samples import LEAVES


def refused(server: Server, query: str, parameters: Any = None) -> str:
    """The message of the error that a client gets."""
    with pytest.raises(flight_sql.Error) as raised:
        server.ask(query, parameters)
    return str(raised.value)


def test_an_answer_is_that_of_the_catalog(server: Server, catalog: Catalog) -> None:
    for query in (
        "SELECT kind, count(*) AS n FROM db.events WHERE id >= 990 GROUP BY kind ORDER BY kind",
        "FROM db.events",
        "SELECT name FROM db.events JOIN db.deep.er.users USING (id) ORDER BY id",
        'FROM db."a.b"',
        "WITH t AS (SELECT 1 AS x) SELECT x AS a, x AS a FROM t",
        "SUMMARIZE db.events",
        "FROM db.events LIMIT 0",
    ):
        expected = catalog.sql(query).to_arrow()
        assert server.ask(query).equals(expected), query


@pytest.mark.long
def test_every_type_comes_as_the_catalog_gives_it(server: Server, catalog: Catalog) -> None:
    """Types that DuckDB can't read are refused by both."""
    answered = 0
    for number, (kind, values) in enumerate(LEAVES):
        catalog.create_table(f"types.t{number}", data=pa.table({"x": pa.array(values, kind)}))
        query = f"FROM types.t{number}"
        try:
            expected = catalog.sql(query).to_arrow()
        except InvalidArgumentError:
            refused(server, query)
        else:
            assert server.ask(query).equals(expected), kind
            answered += 1
    assert answered > 25


def test_a_filter_reaches_the_files(server: Server, catalog: Catalog) -> None:
    """The other file of the table is gone, so that reading it would fail."""
    table = catalog.create_table("db.parts", data={"id": [1, 2]}, partition_by="id")
    gone = next(Path(table.location).glob("data/id=2/*.fermion"))
    gone.unlink()
    assert server.ask("SELECT id FROM db.parts WHERE id = 1")["id"].to_pylist() == [1]
    assert "names a file that is gone" in refused(server, "SELECT sum(id) FROM db.parts")


def test_names_may_have_a_catalog_and_namespaces_in_one_part(shared: Server) -> None:
    """As clients write them that put quotes around what metadata calls catalog and schema."""
    for name in (
        '"fermion"."db"."events"',
        "fermion.main.top",
        "main.top",
        '"db.deep.er"."users"',
        '"fermion"."db.deep.er"."users"',
        '"fermion"."db"."a.b"',
    ):
        assert shared.ask(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py() in (1, 2, 1000)


@pytest.mark.long
def test_twenty_clients_at_once_have_their_own_answers(shared: Server) -> None:
    """More than the server computes at the same time; each asks again and again."""

    def client(number: int) -> list[int]:
        answers = []
        with shared.connect() as connection, connection.cursor() as cursor:
            for step in range(3):
                where = f"id % 20 = {number} AND id < {300 * (step + 1)}"
                cursor.execute(f"SELECT sum(id) AS s FROM db.events WHERE {where}")
                answers.append(cursor.fetchone()[0])
        return answers

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(client, range(20)))
    assert answers == [
        [sum(range(number, 300 * (step + 1), 20)) for step in range(3)] for number in range(20)
    ]
    shared.wait_until(lambda: shared.running == 0)


def test_a_new_snapshot_is_read_by_the_next_query(server: Server, catalog: Catalog) -> None:
    """Also by a prepared one; rows that were planned before are those of their own snapshot."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.adbc_prepare("SELECT count(*) FROM top")
        cursor.execute("SELECT count(*) FROM top")
        assert cursor.fetchone() == (1,)
        catalog.table("top").append({"id": [3]})
        cursor.execute("SELECT count(*) FROM top")
        assert cursor.fetchone() == (2,)


def test_parameters_are_values_wherever_sql_allows_one(shared: Server) -> None:
    count = "SELECT count(*) AS n FROM db.events WHERE "
    for query, values, expected in (
        (count + "id < ? AND kind = ?", (100, "read"), 50),
        (count + "kind = $2 AND id < $1", (100, "read"), 50),
        (count + "id < $most AND kind = $kind;", (100, "read"), 50),
        (count + "kind = ? -- its kind", ("'; DROP TABLE top; --",), 0),
        (count + "kind IS NOT DISTINCT FROM ?", (None,), 0),
        ("SELECT count(*) AS n FROM (FROM db.events LIMIT ?)", (7,), 7),
    ):
        assert shared.ask(query, values)["n"].to_pylist() == [expected], query


def test_a_prepared_query_takes_other_values_each_time(shared: Server) -> None:
    with shared.connect() as connection, connection.cursor() as cursor:
        for most in (3, 1, 2):
            cursor.execute("SELECT id, ? AS x FROM db.events WHERE id < ?", (f"x{most}", most))
            assert cursor.fetchall() == [(number, f"x{most}") for number in range(most)]


def test_values_that_are_none_of_a_query_are_refused(shared: Server) -> None:
    assert "one row of values for the parameters $1, found 1 rows of 2" in refused(
        shared, "SELECT ?", (1, 2)
    )
    assert "values for the parameters $1, found none" in refused(shared, "SELECT ?")
    assert "one row of values for no parameters" in refused(shared, "SELECT 1", (1,))
    two = pa.record_batch({"1": [1, 2]})
    with shared.connect() as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("SELECT ?")
        cursor.adbc_statement.prepare()
        cursor.adbc_statement.bind(*two.__arrow_c_array__()[::-1])
        with pytest.raises(flight_sql.Error, match="found 2 rows of 1 values"):
            cursor.adbc_statement.execute_query()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (";", "expected one query, found 0 statements"),
        ("SELECT 1; SELECT 2", "found 2 statements"),
        ("SELECT nope FROM db.events", '"nope" not found'),
        ("FROM db.event", "no table db.event"),
        ("FROM nowhere.t", "no table nowhere.t"),
        ("SELECT 'open", "unterminated"),
        ("SELECT CAST(kind AS INT) FROM db.events", "Could not convert string"),
        ("INSERT INTO top VALUES (1)", "found INSERT"),
        ("UPDATE top SET id = 1", "found UPDATE"),
        ("DELETE FROM top", "found DELETE"),
        ("DROP TABLE top", "found DROP"),
        ("CREATE TABLE x AS FROM top", "found CREATE"),
        ("CREATE SECRET (TYPE s3)", "found CREATE"),
        ("COPY top TO 'copy.csv'", "found COPY"),
        ("EXPORT DATABASE 'copy'", "expected a query"),
        ("ATTACH 'other.db'", "found ATTACH"),
        ("INSTALL httpfs", "found LOAD"),
        ("LOAD httpfs", "found LOAD"),
        ("SET memory_limit = '1TB'", "found SET"),
        ("SET enable_external_access = true", "found SET"),
        ("PRAGMA threads = 8", "expected a query"),
        ("CALL pragma_version()", "found CALL"),
        ("BEGIN", "found TRANSACTION"),
        ("FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("FROM read_text('/etc/passwd')", "disabled by configuration"),
        ("FROM glob('/etc/*')", "disabled by configuration"),
        ("FROM read_parquet('https://example.org/x.parquet')", "disabled by configuration"),
        ("FROM duckdb_secrets()", "disabled by configuration"),
        ("SELECT getenv('HOME')", "getenv does not exist"),
        ("FROM '/etc/passwd'", "no table"),
        ("FROM EVENTS_OF_PYTHON", "no table EVENTS_OF_PYTHON"),
        ("FROM query('FROM EVENTS_OF_PYTHON')", "EVENTS_OF_PYTHON does not exist"),
        ("FROM query_table('EVENTS_OF_PYTHON')", "EVENTS_OF_PYTHON does not exist"),
    ],
)
def test_what_is_no_query_of_the_tables_is_refused_in_our_words(
    shared: Server, query: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, and no client sees a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(globals(), "EVENTS_OF_PYTHON", EVENTS)
    before = sorted(tmp_path.rglob("*"))
    text = refused(shared, query)
    assert message in text
    assert "Traceback" not in text
    assert ".py" not in text
    assert sorted(tmp_path.rglob("*")) == before


def test_only_the_token_opens_the_door(shared: Server) -> None:
    """As a bearer token, or as the password of any user."""
    for options in (
        {"username": "someone", "password": TOKEN},
        {"adbc.flight.sql.authorization_header": f"bearer {TOKEN}"},
    ):
        with shared.connect(**options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
    for options in (
        {"adbc.flight.sql.authorization_header": "Bearer another"},
        {"adbc.flight.sql.authorization_header": f"Basic {TOKEN}"},
        {"adbc.flight.sql.authorization_header": f"Digest {TOKEN}"},
        {"adbc.flight.sql.authorization_header": ""},
        {"username": TOKEN, "password": ""},
        {"adbc.flight.sql.rpc.call_header.x": "y"},
    ):
        with (
            pytest.raises(flight_sql.Error, match="expected the server's token"),
            shared.connect(**options) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")


def test_every_call_asks_for_the_token(shared: Server) -> None:
    client, _ = shared.client()
    descriptor = pa.flight.FlightDescriptor.for_command(written("CommandGetCatalogs"))
    ticket = pa.flight.Ticket(written("CommandGetCatalogs"))
    for call in (
        lambda: client.get_flight_info(descriptor),
        lambda: client.get_schema(descriptor),
        lambda: client.do_get(ticket).read_all(),
        lambda: list(client.do_action(pa.flight.Action("CancelQuery", b""))),
        lambda: client.list_actions(),
        lambda: list(client.list_flights()),
        lambda: client.do_put(descriptor, EVENTS.schema)[0].close(),
    ):
        with pytest.raises((pa.flight.FlightUnauthenticatedError, OSError), match="server's token"):
            call()


def test_without_a_token_every_client_may_ask(serving: Callable[..., Any]) -> None:
    with (
        serving(token=None) as server,
        flight_sql.connect(server.uri, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_tls_hides_what_is_sent(catalog: Catalog, tmp_path: Path) -> None:
    """A client that knows the certificate connects; one without TLS does not."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {chain} -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    from fermion_table.serving.server import SqlServer

    certificate = chain.read_bytes(), key.read_bytes()
    server = SqlServer(catalog, "grpc+tls://localhost:0", token=TOKEN, certificate=certificate)
    options = {
        "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}",
        "adbc.flight.sql.client_option.tls_root_certs": chain.read_text(),
    }
    address = f"localhost:{server.port}"
    try:
        with (
            flight_sql.connect(f"grpc+tls://{address}", options, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
        with pytest.raises(flight_sql.Error):
            flight_sql.connect(f"grpc://{address}", options).cursor().execute("SELECT 1")
    finally:
        server.stop()


def test_messages_of_others_are_refused_by_name(shared: Server) -> None:
    client, options = shared.client()
    schema = pa.flight.FlightDescriptor.for_command

    def fetch(data: bytes) -> Any:
        return client.do_get(pa.flight.Ticket(data), options).read_all()

    for call, message in (
        (lambda: client.get_flight_info(schema(b""), options), "expected a message of Arrow"),
        (lambda: client.get_flight_info(schema(b"\x00\xff"), options), "expected a message of"),
        (lambda: client.get_schema(schema(b"\x0a\x05abc"), options), "it ends early"),
        (lambda: fetch(b"SELECT 1"), "expected a message of Arrow"),
        (lambda: fetch(written("CommandStatementQuery", query="SELECT 1")), "not offered"),
        (lambda: fetch(written("TicketStatementQuery", statement_handle=b"?")), "no query of this"),
        (lambda: list(client.do_action(pa.flight.Action("Begin", b""), options)), "Begin: not"),
        (
            lambda: list(client.do_action(pa.flight.Action("CancelQuery", b"a"), options)),
            "expected",
        ),
        (
            lambda: list(
                client.do_action(pa.flight.Action("CancelFlightInfo", bare(1, b"a")), options)
            ),
            "FlightInfo",
        ),
    ):
        with pytest.raises(pa.ArrowException, match=message):
            call()
    names = [action.type for action in client.list_actions(options)]
    assert "CreatePreparedStatement" in names


def test_a_server_that_stops_ends_queries_and_says_so(serving: Callable[..., Any]) -> None:
    with serving() as server:
        client, options = server.client()
        command = written("CommandStatementQuery", query=ENDLESS)
        info = client.get_flight_info(pa.flight.FlightDescriptor.for_command(command), options)
        reader = client.do_get(info.endpoints[0].ticket, options)
        server.wait_until(lambda: server.running == 1)
        threading.Thread(target=server.server.stop).start()
        with pytest.raises(pa.flight.FlightUnavailableError, match="server stops; try again later"):
            reader.read_chunk()


def test_a_server_that_stops_lets_a_short_query_end(serving: Callable[..., Any]) -> None:
    """The client takes its last rows while the server waits for it."""
    with serving() as server:
        client, options = server.client()
        command = written("CommandStatementQuery", query="SELECT range FROM range(3000000)")
        descriptor = pa.flight.FlightDescriptor.for_command(command)
        info = client.get_flight_info(descriptor, options)
        reader = client.do_get(info.endpoints[0].ticket, options)
        rows = reader.read_chunk().data.num_rows
        stopping = threading.Thread(target=server.server.stop, args=(60,))
        stopping.start()
        server.wait_until(lambda: server.server._queries._stops)
        with pytest.raises(pa.flight.FlightUnavailableError, match="the server stops"):
            client.get_flight_info(descriptor, options)
        rows += reader.read_all().num_rows
        stopping.join(60)
        assert not stopping.is_alive()
        assert rows == 3000000

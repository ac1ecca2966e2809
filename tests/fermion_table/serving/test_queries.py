"""Limits of queries, and how they end: by their clients, by time, rows and memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow.flight
import pytest

from fermion_table.serving.messages import bare, bare_field, read_message, written
from tests.fermion_table.serving.conftest import ENDLESS, Server


def test_an_abandoned_query_ends_while_it_computes(shared: Server) -> None:
    """DuckDB has no row for a day; the client gives up."""
    with shared.connect() as connection, connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        with pytest.raises(flight_sql.Error, match="cancel"):  # noqa: PT012
            cursor.execute(ENDLESS)
            cursor.fetchone()
    shared.wait_until(lambda: shared.running == 0)


def test_an_abandoned_query_ends_between_its_batches(shared: Server) -> None:
    with shared.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT range FROM range(100000000000)")
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows > 0
        assert shared.running == 1
        reader.close()
        shared.wait_until(lambda: shared.running == 0)


def test_a_client_that_is_gone_takes_its_query_with_it(shared: Server) -> None:
    """It closes the connection while it reads; another client is not in its way."""
    connection = shared.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT range FROM range(100000000000)")
    reader = cursor.fetch_record_batch()
    assert reader.read_next_batch().num_rows > 0
    assert shared.ask("SELECT count(*) AS n FROM top")["n"].to_pylist() == [1]
    del reader
    cursor.close()
    connection.close()
    shared.wait_until(lambda: shared.running == 0)


def test_a_query_ends_at_its_limit_of_time(serving: Callable[..., Any]) -> None:
    with serving(seconds=0.3) as server:
        with pytest.raises(flight_sql.Error, match=r"took more than 0\.3 seconds"):
            server.ask(ENDLESS)
        assert server.running == 0
        assert server.ask("SELECT 1 AS x")["x"].to_pylist() == [1]


def test_a_client_that_takes_no_rows_holds_no_database_past_the_limit(
    serving: Callable[..., Any],
) -> None:
    """It hears of the end when it reads on: an answer is never silently short."""
    with serving(seconds=0.5) as server, server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT range FROM range(100000000000)")
            reader = cursor.fetch_record_batch()
            server.wait_until(lambda: server.running == 1)
            (work,) = server.server._queries._works
            server.wait_until(lambda: work._ended is not None)
            with pytest.raises(OSError, match=r"took more than 0\.5 seconds"):
                for _ in reader:
                    pass
        server.wait_until(lambda: server.running == 0)


def test_an_answer_ends_at_its_limit_of_rows(serving: Callable[..., Any]) -> None:
    with serving(rows=1000) as server:
        assert server.ask("FROM db.events").num_rows == 1000
        with pytest.raises(flight_sql.Error, match="more than 1,000 rows"):
            server.ask("SELECT id FROM db.events UNION ALL FROM top")


def test_a_query_ends_at_its_limit_of_memory(serving: Callable[..., Any]) -> None:
    """Nothing is spilled to the server's disk."""
    with serving(memory="50MB") as server:
        with pytest.raises(flight_sql.Error, match="Out of Memory"):
            server.ask("SELECT range % 9999991 AS x, count(*) FROM range(20000000) GROUP BY x")
        assert server.ask("SELECT count(*) AS n FROM top")["n"].to_pylist() == [1]


def test_more_queries_than_places_wait_and_are_then_refused(serving: Callable[..., Any]) -> None:
    with serving(queries=1, wait_s=0.05) as server, server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT range FROM range(100000000000)")
            reader = cursor.fetch_record_batch()
            with pytest.raises(flight_sql.Error, match="1 queries run on this server, its limit"):
                server.ask("SELECT 1")
            reader.close()
        server.wait_until(lambda: server.running == 0)
        assert server.ask("SELECT 1 AS x")["x"].to_pylist() == [1]


def test_planned_queries_keep_few_databases_and_are_all_answered(
    serving: Callable[..., Any],
) -> None:
    """Clients plan twelve before they fetch the first; two databases wait for them."""
    with serving(queries=2) as server:
        client, options = server.client()
        tickets = []
        for number in range(12):
            command = written("CommandStatementQuery", query=f"SELECT {number} AS x")
            descriptor = pyarrow.flight.FlightDescriptor.for_command(command)
            tickets.append(client.get_flight_info(descriptor, options).endpoints[0].ticket)
        planned = server.server._planned._values.values()
        assert sum(len(query._idle) for query in planned) == 2
        for number, ticket in [*enumerate(tickets), (0, tickets[0])]:
            answer = client.do_get(ticket, options).read_all()
            assert answer["x"].to_pylist() == [number]


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_query_is_cancelled_by_its_flight_info(shared: Server, action: str) -> None:
    """By the calls of newer and of older clients; a second time there is nothing to cancel."""
    client, options = shared.client()
    command = written("CommandStatementQuery", query=ENDLESS)
    descriptor = pyarrow.flight.FlightDescriptor.for_command(command)
    info = client.get_flight_info(descriptor, options)
    errors: list[Exception] = []

    def fetch() -> None:
        try:
            # Not read_all: it takes any cancellation for Ctrl-C, and interrupts the main thread.
            client.do_get(info.endpoints[0].ticket, options).read_chunk()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            errors.append(error)

    fetching = threading.Thread(target=fetch)
    fetching.start()
    shared.wait_until(lambda: shared.running == 1)
    outcomes = []
    for _ in range(2):
        data = info.serialize()
        if action == "CancelQuery":
            body = written("ActionCancelQueryRequest", info=data)
        else:
            body = bare(1, data)
        (result,) = client.do_action(pyarrow.flight.Action(action, body), options)
        reply = result.body.to_pybytes()
        outcomes.append(
            read_message(reply).values["result"] if action == "CancelQuery" else reply[1]
        )
    fetching.join(60)
    assert outcomes == [1, 3]
    assert "cancelled by its client" in str(errors[0])
    assert bare_field(bare(1, b"x"), 1) == b"x"


def test_the_log_has_a_record_of_each_query(
    shared: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """With numbers as attributes, and without the credentials of a URL in the query."""
    caplog.set_level(logging.INFO, "fermion_table.serving.queries")
    shared.ask("SELECT 's3://key:secret@bucket/x' AS x FROM top")
    with pytest.raises(flight_sql.Error):
        shared.ask("SELECT CAST(kind AS INT) FROM db.events")
    shared.wait_until(lambda: len(caplog.records) == 2)
    first, second = caplog.records
    assert (first.rows, first.outcome) == (1, "done")  # type: ignore[attr-defined]
    assert first.peer.startswith("ipv4:127.0.0.1")  # type: ignore[attr-defined]
    assert "secret" not in first.getMessage()
    assert second.outcome == "InvalidArgumentError"  # type: ignore[attr-defined]

"""A server in the process of the tests, and what its clients are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
import pyarrow.flight
import pytest

from fermion_table import Catalog
from fermion_table.serving.queries import Limits
from fermion_table.serving.server import SqlServer

TOKEN = "a-token"
EVENTS = pa.table({"id": range(1000), "kind": ["open", "read", "close", "read"] * 250})
ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(100000) b"
"""One row, after a day or so."""


class Server:
    """A server in this process, and connections of ADBC to it."""

    def __init__(self, catalog: Catalog, **options: Any) -> None:
        options = {"token": TOKEN, **options}
        self.catalog = catalog
        self.server = SqlServer(catalog, "grpc://127.0.0.1:0", **options)
        self.uri = f"grpc://127.0.0.1:{self.server.port}"

    def connect(self, token: str = TOKEN, **options: str) -> Any:
        header = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        return flight_sql.connect(self.uri, db_kwargs=options or header, autocommit=True)

    def client(self) -> tuple[pyarrow.flight.FlightClient, pyarrow.flight.FlightCallOptions]:
        """A client of Arrow Flight, which knows nothing of SQL, and the token for its calls."""
        header = (b"authorization", b"Bearer " + TOKEN.encode())
        return pyarrow.flight.connect(self.uri), pyarrow.flight.FlightCallOptions(headers=[header])

    def ask(self, query: str, parameters: Any = None) -> pa.Table:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return cursor.fetch_arrow_table()

    @property
    def running(self) -> int:
        return len(self.server._queries._works)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            if holds():
                return
            time.sleep(0.05)
        raise AssertionError("it has not come to that in half a minute")


def make_catalog(path: Path) -> Catalog:
    made = Catalog.open(path, durability="fast")
    made.create_table("db.events", data=EVENTS)
    made.create_table("db.deep.er.users", data={"id": [1, 2], "name": ["a", "b"]}, primary_key="id")
    made.create_table("db.`a.b`", data={"x": [7]})
    made.create_table("top", data={"id": [2]})
    return made


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return make_catalog(tmp_path / "warehouse")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default limits, over tables that no test changes."""
    made = Server(make_catalog(tmp_path_factory.mktemp("shared") / "warehouse"))
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def serving(shared: Server) -> Callable[..., Any]:
    """A ``with`` block around a server of the same tables with other options."""

    @contextmanager
    def served(**options: Any) -> Iterator[Server]:
        limits = Limits(**{name: options.pop(name) for name in list(options) if name in LIMITS})
        made = Server(shared.catalog, limits=limits, **options)
        try:
            yield made
        finally:
            made.server.stop()

    return served


LIMITS = Limits.__dataclass_fields__


@pytest.fixture
def server(catalog: Catalog) -> Iterator[Server]:
    made = Server(catalog)
    yield made
    made.server.stop()

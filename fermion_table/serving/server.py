"""The server: calls of Arrow Flight SQL, answered by a catalog and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import logger
from fermion_table.catalog.catalog import Catalog
from fermion_table.serving.access import AnyHandshake, TokenCheck
from fermion_table.serving.catalog_tables import CatalogTables
from fermion_table.serving.messages import bare, bare_field, read_message, written
from fermion_table.serving.queries import (
    Answer,
    Handles,
    Limits,
    Queries,
    Query,
    QueryCancelled,
    QueryTimedOut,
    ServerBusy,
)

_CANCELLED, _NOT_CANCELLED = 1, 3
"""What the protocol calls the outcomes of a cancellation."""
_ONLY_READS = "this server only reads: write with fermion_table or spark_ext"
_log = logger(__name__)


class SqlServer(flight.FlightServerBase):  # type: ignore[misc, unused-ignore]
    """Answers SQL over the tables of a catalog, to any client of Arrow Flight SQL.

    It listens from the beginning; `stop` ends it.

    catalog: Whose tables are read.
    location: Where it listens, such as ``grpc://127.0.0.1:31337``, or ``grpc+tls://`` with a
        certificate; port 0: any that is free (see `port`).
    token: What clients must send; None: nothing.
    certificate: Of TLS: the chain and the key, in PEM.
    limits: Of each query.
    Raises OSError: The address can't be had.
    """

    def __init__(
        self,
        catalog: Catalog,
        location: str,
        *,
        token: str | None,
        certificate: tuple[bytes, bytes] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._tables = CatalogTables(catalog)
        self._queries = Queries(self._tables.scan, limits or Limits(), catalog.location)
        self._planned = Handles[Query]("query")
        self._statements = Handles[_Statement]("prepared statement")
        self._actions: dict[str, tuple[str, Callable[[Any, bytes], bytes]]] = {
            "CreatePreparedStatement": ("prepares a query", self._prepare),
            "ClosePreparedStatement": ("forgets a prepared query", self._close_prepared),
            "CancelFlightInfo": ("ends a query", self._cancel_info),
            "CancelQuery": ("ends a query, as older clients ask for it", self._cancel_query),
        }
        try:
            super().__init__(
                location,
                auth_handler=AnyHandshake() if token is not None else None,
                tls_certificates=[certificate] if certificate is not None else None,
                middleware={"token": TokenCheck(token)} if token is not None else None,
            )
        except pa.ArrowException as error:
            raise OSError(
                f"{location}: can't listen there: is the address this machine's, the port free, "
                f"and the certificate right? ({error})"
            ) from error

    def stop(self, grace_s: float = 0.0) -> None:
        """Take no more queries, end those that run after some seconds, and listen no more."""
        self._queries.stop(grace_s)
        self.shutdown()

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Plan what a command asks for; where its rows are fetched."""
        with _told():
            schema, ticket = self._planned_answer(context, descriptor)
            endpoint = flight.FlightEndpoint(flight.Ticket(ticket), [])
            return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The schema of what a command asks for."""
        with _told():
            schema, _ = self._planned_answer(context, descriptor)
            return flight.SchemaResult(schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The rows of a ticket."""
        with _told():
            command = read_message(ticket.ticket)
            schema = self._tables.schema(command)
            if schema is not None:
                return flight.RecordBatchStream(self._tables.answer(command))
            if command.kind == "TicketStatementQuery":
                query = self._planned.get(command.values["statement_handle"])
                answer = Answer(self._queries, query, context)
                return flight.GeneratorStream(query.schema, _Told(answer))
            raise _unknown(command.kind)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        """What is neither a query nor rows: prepare, close, cancel."""
        with _told():
            if action.type not in self._actions:
                raise _unknown(action.type)
            _, act = self._actions[action.type]
            reply = act(context, action.body.to_pybytes())
            return [flight.Result(reply)] if reply else []

    def list_actions(self, context: Any) -> list[Any]:
        """What `do_action` takes."""
        return [flight.ActionType(name, text) for name, (text, _) in self._actions.items()]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Values for a prepared query."""
        with _told():
            command = read_message(descriptor.command or b"")
            if command.kind != "CommandPreparedStatementQuery":
                raise _unknown(command.kind)
            statement = self._statements.get(command.values["prepared_statement_handle"])
            statement.bind(reader.read_all())

    def _planned_answer(self, context: Any, descriptor: Any) -> tuple[pa.Schema, bytes]:
        """The schema of an answer, and the ticket that fetches its rows."""
        data = descriptor.command or b""
        command = read_message(data)
        schema = self._tables.schema(command)
        if schema is not None:
            return schema, data
        if command.kind == "CommandStatementQuery":
            query = self._queries.plan(command.values["query"] or "", None, context)
        elif command.kind == "CommandPreparedStatementQuery":
            statement = self._statements.get(command.values["prepared_statement_handle"])
            query = self._queries.plan(statement.text, statement.values, context)
        else:
            raise _unknown(command.kind)
        handle = self._planned.add(query)
        return query.schema, written("TicketStatementQuery", statement_handle=handle)

    def _prepare(self, context: Any, body: bytes) -> bytes:
        query = self._queries.plan(read_message(body).values.get("query") or "", {}, context)
        query.close()
        statement = _Statement(query)
        return written(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._statements.add(statement),
            dataset_schema=query.schema.serialize().to_pybytes(),
            parameter_schema=statement.schema.serialize().to_pybytes(),
        )

    def _close_prepared(self, context: Any, body: bytes) -> bytes:
        self._statements.drop(read_message(body).values.get("prepared_statement_handle", b""))
        return b""

    def _cancel_info(self, context: Any, body: bytes) -> bytes:
        return bare(1, self._cancel(bare_field(body, 1)))

    def _cancel_query(self, context: Any, body: bytes) -> bytes:
        outcome = self._cancel(read_message(body).values.get("info", b""))
        return written("ActionCancelQueryResult", result=outcome)

    def _cancel(self, info: bytes) -> int:
        """End the answers to the query of a `FlightInfo`; the outcome, by its number."""
        try:
            endpoints = flight.FlightInfo.deserialize(info).endpoints
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgumentError(f"expected a FlightInfo: {error}") from error
        for endpoint in endpoints:
            ticket = read_message(endpoint.ticket.ticket)
            query = self._planned.drop(ticket.values.get("statement_handle", b""))
            if query is not None:
                query.close()
                self._queries.cancel(query)
                return _CANCELLED
        return _NOT_CANCELLED


class _Statement:
    """A prepared query, and the values that a client has bound to its parameters."""

    def __init__(self, query: Query) -> None:
        self.text, self.schema = query.text, query.parameters
        self._values: Mapping[str, Any] | None = None if self.schema.names else {}

    @property
    def values(self) -> Mapping[str, Any]:
        """What was bound last.

        Raises InvalidArgumentError: Nothing.
        """
        if self._values is None:
            raise InvalidArgumentError(f"expected values for {self._parameters}, found none")
        return self._values

    def bind(self, rows: pa.Table) -> None:
        """Take the values of one row: by name, or in the order of the parameters.

        Raises InvalidArgumentError: There are other parameters, or not one row.
        """
        names = self.schema.names
        if rows.num_columns != len(names) or rows.num_rows != 1:
            raise InvalidArgumentError(
                f"expected one row of values for {self._parameters}, found {rows.num_rows} rows of "
                f"{rows.num_columns} values"
            )
        if set(rows.column_names) != set(names):
            rows = rows.rename_columns(names)
        (self._values,) = rows.to_pylist()

    @property
    def _parameters(self) -> str:
        shown = ", ".join(f"${name}" for name in self.schema.names)
        return f"the parameters {shown}" if shown else "no parameters"


class _Told:
    """The rows of an answer, whose errors clients understand."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __iter__(self) -> _Told:
        return self

    def __next__(self) -> pa.RecordBatch:
        with _told():
            return next(self._answer)


def _unknown(kind: str) -> NotImplementedError:
    return NotImplementedError(f"{kind}: not offered; {_ONLY_READS}")


_STATUS: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (QueryCancelled, flight.FlightCancelledError),
    (QueryTimedOut, flight.FlightTimedOutError),
    (ServerBusy, flight.FlightUnavailableError),
    (NotImplementedError, flight.FlightServerError),
    (FermionError, flight.FlightServerError),
    (OSError, flight.FlightUnavailableError),
)
"""What Arrow Flight calls our errors, the first that fits. Errors that are none of Flight's own
would tell more kinds, but with a traceback of Python behind each message."""


@contextmanager
def _told() -> Iterator[None]:
    """Give errors to clients as our words and a status; what nobody expects goes to the log."""
    try:
        yield
    except (flight.FlightError, StopIteration):
        raise
    except Exception as error:  # noqa: BLE001 - every error becomes a reply
        status = next((theirs for ours, theirs in _STATUS if isinstance(error, ours)), None)
        if status is None:
            _log.exception("a call failed")
            message = f"the server failed, and its log says why: {type(error).__name__}"
            raise flight.FlightInternalError(message) from None
        raise status(str(error)) from None

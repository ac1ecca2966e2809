"""The queries that clients run: what each may take, and how it ends."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from fermion import telemetry
from fermion.display import shortened
from fermion.engine import isolated_database, load_duckdb
from fermion.errors import FermionError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.redaction import logger, redacted_text
from fermion_table.scanning.sql import SqlName, SqlResult

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from fermion_table.scanning.scan import Scan

T = TypeVar("T")
HANDLES_MAX = 1000
_LOOK_EACH_S = 0.1
_TEXT_LOGGED = 200
_log = logger(__name__)


class Call(Protocol):
    """The call of a client that waits for an answer, as Arrow Flight shows it to a server."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone, or given the call up."""

    def peer(self) -> str:
        """The address of the client."""


@dataclass(frozen=True)
class Limits:
    """What one query may take.

    seconds: From its start until its last row was taken.
    memory: Of DuckDB, as it writes sizes: ``1GB``.
    rows: Of the answer; None: any number.
    queries: At the same time; others wait for `wait_s` seconds, and are then refused.
    """

    seconds: float = 600.0
    memory: str = "1GB"
    rows: int | None = None
    queries: int = 16
    wait_s: float = 30.0

    def check(self) -> None:
        """Refuse a size of memory that DuckDB does not understand.

        Raises InvalidArgumentError: So is one that is missing: without DuckDB nothing is answered.
        """
        duckdb = load_duckdb("serve")
        try:
            isolated_database("serve", memory_limit=self.memory).close()
        except duckdb.Error as error:
            raise InvalidArgumentError(
                f"memory={self.memory!r}: expected a size, such as 1GB: {error}"
            ) from error


class QueryEnded(FermionError):
    """A query was ended before its last row."""


class QueryCancelled(QueryEnded):
    """By its client."""


class QueryTimedOut(QueryEnded):
    """By the limit of time."""


class ServerBusy(QueryEnded):
    """By the server, which has no room for it, or stops."""


class Handles(Generic[T]):
    """What clients come back for, by random bytes; the oldest go when there are too many."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._values: OrderedDict[bytes, T] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, value: T) -> bytes:
        """Keep a value; its handle."""
        handle = secrets.token_bytes(16)
        with self._lock:
            self._values[handle] = value
            if len(self._values) > HANDLES_MAX:
                self._values.popitem(last=False)
        return handle

    def get(self, handle: bytes) -> T:
        """The value of a handle.

        Raises InvalidArgumentError: It was closed, is too old, or is another server's.
        """
        with self._lock:
            value = self._values.get(handle)
        if value is None:
            raise InvalidArgumentError(
                f"no {self._noun} of this handle: it was closed, {HANDLES_MAX:,} newer ones came, "
                "or the server was started again; send the query again"
            )
        return value

    def drop(self, handle: bytes) -> T | None:
        """Forget a value; None if there is none."""
        with self._lock:
            return self._values.pop(handle, None)


class Work:
    """What is computed for one call: the plan of a query, or its rows.

    ends: When its time is over, on the clock of `time.monotonic`.
    """

    def __init__(
        self, query: Query, call: Call, connection: DuckDBPyConnection, ends: float
    ) -> None:
        self.query = query
        self._call, self._connection, self._ends = call, connection, ends
        self._busy, self._looks = threading.Lock(), threading.Lock()
        self._computes = False
        self._ended: QueryEnded | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """While something is computed, which may be ended.

        Raises QueryEnded: It was.
        """
        with self._busy:
            if self._ended is not None:
                raise self._ended
            self._computes = True
            try:
                yield
            except Exception:  # of whatever kind, where the query was ended: it says why
                if self._ended is not None:
                    raise self._ended from None
                raise
            finally:
                with self._looks:
                    self._computes = False

    def look(self, seconds: float) -> None:
        """End it, if nobody waits for it any more or its time is over."""
        with self._looks:  # outside of a step the call may be over, and Flight has freed it
            is_left = self._computes and self._call.is_cancelled()
        if self._ended is None and is_left:
            self.end(QueryCancelled("the query was ended: its client is gone, or gave it up"))
        if self._ended is None and time.monotonic() > self._ends:
            self.end(QueryTimedOut(f"the query was ended: it took more than {seconds:g} seconds"))
        if self._ended is not None:
            self.end(self._ended)  # again: DuckDB forgets an interrupt that comes between its steps

    def end(self, reason: QueryEnded) -> None:
        """Stop what is computed now; or let go of it, where it waits for the client."""
        self._ended = self._ended or reason
        if self._busy.acquire(blocking=False):
            try:
                self._connection.close()
            finally:
                self._busy.release()
        else:
            self._connection.interrupt()


class Query:
    """One query of a client: planned once, and answered when its rows are fetched.

    Tables are read at the snapshots that they had when it was planned.

    text: Its SQL.
    schema: Of the answer.
    parameters: Their names and types; see `SqlResult`.
    """

    def __init__(
        self, queries: Queries, text: str, parameters: Mapping[str, Any] | None, call: Call
    ) -> None:
        self.text, self._queries = text, queries
        connection = queries.database()
        try:
            with queries.watched(self, call, connection) as work, work.step():
                self._result = SqlResult(
                    text,
                    queries.scan,
                    where="sql",
                    parameters=parameters,
                    open_database=lambda: nullcontext(connection),
                )
        except BaseException:
            connection.close()
            raise
        self.schema = self._result.schema
        self.parameters = pa.schema(list(self._result.parameter_types.items()))
        self._idle = [connection]  # for the rows, which mostly are fetched at once

    def database(self) -> DuckDBPyConnection:
        """The database that it was planned in, or another one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._queries.database()

    def batches(self, connection: DuckDBPyConnection) -> Generator[pa.RecordBatch, None, None]:
        """Its rows, computed in a database."""
        batches = self._result.computed_in(lambda: nullcontext(connection)).to_batches()
        watching = telemetry.watching
        if watching is None:
            return batches
        return watching.batches("fermion.query", batches, self._queries.warehouse)

    def close(self) -> None:
        """Let go of the database that waits for the rows, which can still be fetched."""
        while self._idle:
            self._idle.pop().close()


class Answer:
    """The rows of a query as record batches, for one call: until the last, an error, or `close`.

    Raises ServerBusy: Too many queries run already.
    """

    def __init__(self, queries: Queries, query: Query, call: Call) -> None:
        self._queries, self._query, self._peer = queries, query, call.peer()
        self._began, self._rows, self._outcome = time.monotonic(), 0, "left"
        self._open: contextlib.ExitStack | None = None  # what `close` lets go of, the last first
        with contextlib.ExitStack() as opened:
            opened.enter_context(queries.place())
            connection = query.database()
            opened.callback(connection.close)
            self._work = opened.enter_context(queries.watched(query, call, connection))
            self._batches = query.batches(connection)
            opened.callback(self._batches.close)
            self._open = opened.pop_all()

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            with self._work.step():
                batch = next(self._batches, None)
            if batch is not None:
                self._count(batch.num_rows)
                return batch
        except BaseException as error:
            self._outcome = type(error).__name__
            self.close()
            raise
        self._outcome = "done"
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End it; the second time nothing happens."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
            self._log()

    def __del__(self) -> None:  # the only word from a server whose client has gone
        self.close()

    def _count(self, rows: int) -> None:
        self._rows += rows
        limit = self._queries.limits.rows
        if limit is not None and self._rows > limit:
            raise InvalidArgumentError(
                f"the answer has more than {limit:,} rows, the limit of this server; "
                "add a LIMIT to the query, or ask for an aggregate"
            )

    def _log(self) -> None:
        seconds = time.monotonic() - self._began
        told = {"peer": self._peer, "outcome": self._outcome, "rows": self._rows}
        text = shortened(redacted_text(self._query.text), _TEXT_LOGGED)
        _log.info(
            "query of %s: %s, %s rows, %.3f s: %s",
            *(*told.values(), seconds, text),
            extra={**told, "seconds": seconds, "query": text},
        )


class Queries:
    """What runs on a server, within its limits.

    scan: Gives the rows of a table by its name in a query.
    warehouse: Where the tables lie, for telemetry.
    """

    def __init__(self, scan: Callable[[SqlName], Scan], limits: Limits, warehouse: str) -> None:
        self.scan, self.limits, self.warehouse = scan, limits, warehouse
        self._places = threading.BoundedSemaphore(limits.queries)
        self._planned = deque[Query]()
        self._works: set[Work] = set()
        # Reentrant: an answer may be collected, and so closed, by the thread that watches.
        self._changed = threading.Condition(threading.RLock())
        self._stops = False
        threading.Thread(target=self._watch, name="fermion-queries", daemon=True).start()

    def plan(self, text: str, parameters: Mapping[str, Any] | None, call: Call) -> Query:
        """A query, planned.

        Raises QueryEnded, TableError, InvalidArgumentError.
        """
        query = Query(self, text, parameters, call)
        self._planned.append(query)
        if len(self._planned) > self.limits.queries:  # that many databases wait for rows
            self._planned.popleft().close()
        return query

    def database(self) -> DuckDBPyConnection:
        """A database for one query."""
        return isolated_database("sql", memory_limit=self.limits.memory)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for queries that run.

        Raises ServerBusy: None is free.
        """
        if not self._places.acquire(timeout=self.limits.wait_s):
            raise ServerBusy(
                f"{self.limits.queries} queries run on this server, its limit; try again later"
            )
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def watched(self, query: Query, call: Call, connection: DuckDBPyConnection) -> Iterator[Work]:
        """What is computed in a database for a call, which may be ended.

        Raises ServerBusy: The server stops.
        """
        work = Work(query, call, connection, time.monotonic() + self.limits.seconds)
        with self._changed:
            if self._stops:
                raise _stopping()
            self._works.add(work)
            self._changed.notify_all()
        try:
            yield work
        finally:
            with self._changed:
                self._works.discard(work)
                self._changed.notify_all()

    def cancel(self, query: Query) -> bool:
        """End the answers to a query; whether there were any."""
        with self._changed:
            works = [work for work in self._works if work.query is query]
            for work in works:
                work.end(QueryCancelled("the query was cancelled by its client"))
        return bool(works)

    def stop(self, grace_s: float) -> None:
        """Take no more queries, and end those that still run after some seconds."""
        with self._changed:
            self._stops = True
            self._changed.wait_for(lambda: not self._works, grace_s)
            for work in self._works:
                work.end(_stopping())
            self._changed.notify_all()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._works or self._stops)
                if not self._works:
                    return
                for work in list(self._works):
                    try:
                        work.look(self.limits.seconds)
                    except Exception:  # noqa: BLE001 - others have to be watched, too
                        _log.exception("a query could not be ended")
            time.sleep(_LOOK_EACH_S)


def _stopping() -> ServerBusy:
    return ServerBusy("the server stops; try again later")

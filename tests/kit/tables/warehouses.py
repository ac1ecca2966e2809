"""What tests of catalogs share: a schema, rows, and clients of a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from fermion_table import Catalog, Table
from fermion_table.catalog.transactions import CatalogTransaction, ChangedRows
from fermion_table.commit import undecided
from fermion_table.options import CommitOptions

SCHEMA = pa.schema({"id": pa.int64()})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)})


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def again(catalog: Catalog) -> Catalog:
    """Another client of the same warehouse."""
    return Catalog.open(catalog.location, durability="fast")


def list_commits(catalog: Catalog) -> int:
    """The newest snapshot of the list."""
    return Table.open(Path(catalog.location) / "_catalog" / "tables").snapshot.id


@contextmanager
def lease(seconds: float) -> Iterator[None]:
    """Writers wait so long for transactions that are not decided."""
    real, options = undecided.settled, CommitOptions(lease_s=seconds)
    with mock.patch.object(undecided, "settled", lambda *given: real(*given[:3], options)):
        yield


def append_both(
    catalog: Catalog, number: int, meanwhile: Callable[[], object] | None = None, **identity: Any
) -> None:
    """A row for the tables ``a`` and ``db.b``, and what happens before the transaction ends."""
    with catalog.transaction(**identity) as tx:
        tx.table("a").append(rows(number))
        tx.table("db.b").append(rows(number))
        if meanwhile is not None:
            meanwhile()


def stop_before_decision(catalog: Catalog, number: int = 2, **identity: Any) -> None:
    """A transaction whose writer dies when all snapshots are there: it is pending."""
    with (
        mock.patch.object(CatalogTransaction, "_decided", side_effect=SystemExit),
        mock.patch.object(CatalogTransaction, "_give_up"),
        mock.patch.object(ChangedRows, "lost"),
        suppress(SystemExit),
    ):
        append_both(catalog, number, **identity)


def give_up(catalog: Catalog, number: int = 2, **identity: Any) -> None:
    """A transaction that leaves a void snapshot in both tables."""
    with (
        mock.patch.object(CatalogTransaction, "_decided", side_effect=OSError("no storage")),
        suppress(OSError),
    ):
        append_both(catalog, number, **identity)

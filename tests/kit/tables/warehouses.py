"""What tests of catalogs share: a schema, rows, and clients of a warehouse."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pyarrow as pa

from fermion_table import Catalog, Table
from fermion_table.catalog.transactions import CatalogTransaction, ChangedRows
from fermion_table.commit import undecided
from fermion_table.options import CommitOptions
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.local import LocalStore

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


def kill_at_every_step(catalog: Catalog, run: Callable[[int], int]) -> None:
    """Let processes die in a transaction, each a step later; all of it is there then, or nothing.

    run: Runs `die_in_transaction` in another process with a step, and gives its exit code.
    """
    for step in range(1, 40):
        before = _shown(catalog)
        code = run(step)
        shared_cache.clear()
        after = [sorted([*each, 100 + step]) for each in before]
        assert _shown(catalog) in (before, after)
        with lease(0.0):
            for name in ("a", "db.b"):
                catalog.table(name).append(rows(1000 + step))
        assert catalog.table("a").verify().ok
        if code == 0:
            assert step > 5
            return
        assert code == -signal.SIGKILL
    raise AssertionError("the transaction never came to its end")


DIES = "import pickle, sys; from tests.kit.tables.warehouses import die_in_transaction; \
die_in_transaction(pickle.loads(bytes.fromhex(sys.argv[1])), int(sys.argv[2]), is_after=False)"


def kill_other_processes(catalog: Catalog, environment: Mapping[str, str]) -> None:
    """`kill_at_every_step` with new interpreters, where a fork can't use the storage."""
    for name in ("a", "db.b"):
        catalog.create_table(name, SCHEMA).append(rows(1))

    def run(step: int) -> int:
        command = [sys.executable, "-c", DIES, pickle.dumps(catalog).hex(), str(step)]
        return subprocess.run(command, env=environment, check=False).returncode

    kill_at_every_step(catalog, run)


def _shown(catalog: Catalog) -> list[list[int]]:
    client: Catalog = pickle.loads(pickle.dumps(catalog))
    return [ids(client.table(name)) for name in ("a", "db.b")]


def die_in_transaction(catalog: Catalog, step: int, *, is_after: bool) -> NoReturn:
    """End this process in a transaction, before or after it stores so many objects."""
    steps = iter(range(1, 1000))

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            dies = next(steps) >= step
            if dies and not is_after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    store = FsspecStore if "://" in catalog.location else LocalStore
    names = ("create_if_absent", "write", "overwrite_hint")
    code = 1
    try:
        with mock.patch.multiple(store, **{each: dying(getattr(store, each)) for each in names}):
            append_both(catalog, 100 + step)
        code = 0
    finally:
        os._exit(code)

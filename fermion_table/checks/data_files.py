"""Verifying a table together with its data files: identity, rows, checksums, NOT NULL columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import fermion
from fermion.errors import FermionError
from fermion_table.checks.verify import Problem, VerifyReport, verify
from fermion_table.metadata.history import SchemaVersions, latest
from fermion_table.metadata.manifest import Entry, schema_holding
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import list_branch_names
from fermion_table.metadata.shared_files import SharedFiles, options_for
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.reading.split_reader import check_identity
from fermion_table.scanning.scan import Scan
from fermion_table.schema.conversion import find_null
from fermion_table.schema.schema import Field, field_to_arrow
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import AtomicStore, access_of


def verify_table(store: AtomicStore, *, data: bool = False) -> VerifyReport:
    """Check a table that need not open (see `Table.verify`).

    Raises TableNotFound: No snapshot at all.
    """
    if not data:
        return verify(store)
    report = verify(store, check_file=partial(_check_file, store))
    problems = list(report.problems)
    for branch in (MAIN, *list_branch_names(store)):
        # What can't be read is among the problems, or (a sum out of range) is none of the table.
        with contextlib.suppress(FermionError, OSError):
            problems += _nulls(store, latest(store, branch=branch))
    return replace(report, problems=tuple(dict.fromkeys(problems)))


def _nulls(store: AtomicStore, snapshot: Snapshot) -> Iterator[Problem]:
    """The columns of a snapshot that are NOT NULL, and have a null in a row that it shows."""
    schemas = SchemaVersions(store, snapshot)
    entries = live_entries(store, snapshot)
    fields = [each for each in schemas.current.fields if not _has_no_null(each, entries, schemas)]
    if not fields:
        return
    scan = Scan(
        store=store,
        snapshot=snapshot,
        schemas=schemas,
        table_schema=schemas.current,
        columns=tuple((each.name,) for each in fields),
        filter=None,
        merges_level0=True,
    )
    left = [field_to_arrow(each, field_ids=False) for each in fields]
    for batch in scan.to_batches():
        for field in list(left):
            where = find_null(field, batch.column(field.name))
            if where is not None:
                left.remove(field)
                path = snapshot_path(snapshot.id, snapshot.branch)
                yield Problem(path, f"no null in column {where!r}, which is NOT NULL", "a null")


def _has_no_null(field: Field, entries: Sequence[Entry], schemas: SchemaVersions) -> bool:
    """Whether metadata prove that a column has no null where it must have none."""
    if all(each.nullable for _, each in field.walk()):
        return True
    if field.children or any(each.bucket is not None for each in entries):
        return False
    return all(
        each.has_no_null(field.id)
        and field.id in schemas[schema_holding(each.schema_id, each.layout, field.id)].by_id
        for each in entries
    )


def _check_file(store: AtomicStore, entry: Entry) -> list[str]:
    """What is wrong with a data file, in words."""
    try:
        location = SharedFiles(store).data(entry)
        options = fermion.ReadOptions(timeout_s=access_of(store).timeout_s)
        further = options_for(store, location)
        with fermion.open(location, storage_options=further, options=options) as file:
            check_identity(file, entry.file_id, entry.file)
            if file.num_rows != entry.rows:
                return [f"{file.num_rows} rows, the entry says {entry.rows}"]
            return [str(problem) for problem in file.verify().problems]
    except (FermionError, OSError) as error:
        return [str(error)]

"""Opens tables and scans: with the arguments of a function, or as options describe them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, TypeAlias

from fermion.errors import InvalidArgumentError
from fermion_table import Scan, StorageAccess, Table
from fermion_table.engine import MAIN, ChangeScan, CommitMetadata, TransactionTable
from spark_ext.options import SourceOptions, chosen_access

Written: TypeAlias = str | os.PathLike[str] | TransactionTable
"""A table to write to: where it lies, or one of a transaction over several tables."""


def open_written(
    path: Written,
    metadata: CommitMetadata | None = None,
    *,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Table:
    """Open a table to write to it as `open_table`, or take that of a transaction as it is.

    metadata: Of the commit.
    Raises InvalidArgumentError: What belongs to `Catalog.transaction` was given here.
    """
    if not isinstance(path, TransactionTable):
        return open_table(path, branch=branch, storage_options=storage_options, access=access)
    given = {"branch": branch, "storage_options": storage_options, "access": access}
    if metadata is not None:
        named = ("properties", "commit_user", "commit_identifier")
        given |= {name: getattr(metadata, name) or None for name in named}
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name}={value!r}: not of one change of a transaction, which has the branch main, "
                "the catalog's access, and the identity that Catalog.transaction was given"
            )
    return path


def open_table(
    path: str | os.PathLike[str],
    *,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Table:
    """Open a table at the newest snapshot of a branch.

    branch: None: ``main``.
    access: None: the defaults.
    Raises TypeError, InvalidArgumentError: Names the argument that is wrong.
    Raises TableNotFound, VersionNotFound.
    """
    return Table.open(
        path,
        branch=MAIN if branch is None else branch,
        storage_options=storage_options,
        access=chosen_access(access),
    )


def open_branch(options: SourceOptions) -> Table:
    """Open the table that options name, at the newest snapshot of their branch.

    Raises TableNotFound, VersionNotFound.
    """
    return open_table(
        options.path,
        branch=options.branch,
        storage_options=options.storage_options,
        access=options.access,
    )


def open_version(options: SourceOptions) -> Table:
    """Open the table that options name, at the snapshot that they choose.

    Raises InvalidArgumentError, TableNotFound, VersionNotFound.
    """
    scan = scan_of(replace(options, columns=[], filter=None, batch_id=None, blobs="bytes"))
    branch = MAIN if options.branch is None else options.branch
    return Table(scan.store, scan.snapshot, branch=branch)


def scan_of(options: SourceOptions) -> Scan:
    """Make the scan that options describe.

    Raises InvalidArgumentError: The options name more than one version, or a branch and a tag.
    Raises TableNotFound, VersionNotFound, ColumnNotFoundError.
    """
    if options.tag is not None and options.branch is not None:
        raise InvalidArgumentError("tag and branch: expected one of them, as a tag has no branch")
    return open_branch(options).scan(
        columns=options.columns,
        filter=options.filter,
        snapshot_id=options.snapshot_id,
        tag=options.tag,
        as_of=options.as_of,
        batch_id=options.batch_id,
        blobs=options.blobs,
    )


def changes_of(options: SourceOptions, start: int | None, end: int | None) -> ChangeScan:
    """Make the scan of the changes after one snapshot (None: the newest), up to and with another.

    The columns and the filter are those of the options.

    Raises InvalidArgumentError, TableNotFound, VersionNotFound, ColumnNotFoundError.
    """
    table = open_branch(options)
    return table.scan_changes(
        table.snapshot.id if start is None else start,
        end,
        columns=options.columns,
        filter=options.filter,
    )

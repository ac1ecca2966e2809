"""Verifying a table together with its data files: their identity, rows and checksums."""

from __future__ import annotations

from functools import partial

import fermion
from fermion.errors import FermionError
from fermion_table.checks.verify import VerifyReport, verify
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.shared_files import SharedFiles, options_for
from fermion_table.reading.split_reader import check_identity
from fermion_table.storage.store import AtomicStore, access_of


def verify_table(store: AtomicStore, *, data: bool = False) -> VerifyReport:
    """Check a table that need not open (see `Table.verify`).

    Raises
    ------
    TableNotFound
        No snapshot at all.
    """
    return verify(store, check_file=partial(_check_file, store) if data else None)


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

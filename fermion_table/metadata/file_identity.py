"""That a data file is the one that its entry speaks of."""

from __future__ import annotations

import fermion
from fermion_table.errors import CorruptMetadata


def check_identity(file: fermion.FermionFile, expected: str | None, name: str) -> None:
    """Compare an open data file with the one that its entry speaks of.

    Parameters
    ----------
    expected
        The entry's ``file_id``; None, of entries that have none, is not compared.
    name
        The file as the table names it, for the message.

    Raises
    ------
    CorruptMetadata
        It is another file.
    """
    if expected is not None and file.file_id != expected:
        raise CorruptMetadata(
            name, f"the data file with id {expected}", f"another file, with id {file.file_id}"
        )

"""One identity for all files that are written, for tests that compare bytes or show them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from fermion.metadata.footer import FileIdentity

WORKED = FileIdentity(bytes(range(16)), 0x0123_4567_89AB_CDEF)
"""That of the files whose bytes `docs/format.md` shows."""


@contextlib.contextmanager
def one_identity() -> Iterator[FileIdentity]:
    """Files that are written meanwhile all get the same identity."""
    with mock.patch.object(FileIdentity, "new", return_value=WORKED):
        yield WORKED

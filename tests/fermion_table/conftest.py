"""What tests of the table layer share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fermion_table import merge


@pytest.fixture(scope="module")
def small_tail() -> Iterator[None]:
    """A commit of four files is enough for a manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "TAIL_ENTRIES_MAX", 3)
        yield

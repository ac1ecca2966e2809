"""What tests of catalogs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermion_table import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Of an empty warehouse."""
    return Catalog.open(tmp_path / "warehouse", durability="fast")

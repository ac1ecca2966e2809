"""Writes the golden warehouses that are not there yet; what is there is never touched.

    python -m tests.golden.write_golden_catalogs

Each is an archive (see `golden_archives`); beside it lies what its catalog must say, as JSON.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from fermion_table import Catalog
from tests.golden.catalog_features import WAREHOUSES
from tests.kit.golden_archives import archive_of, pack

FOLDER = Path(__file__).resolve().parent / "catalogs" / "v1"


def rows_of(catalog: Catalog, snapshot: str) -> dict[str, list[int]]:
    """The rows of every table in a snapshot."""
    tables = [each.name for each in catalog.snapshots.tables(snapshot)]
    opened = {name: catalog.table(name, version=snapshot) for name in tables}
    return {name: sorted(t.scan().to_arrow()["id"].to_pylist()) for name, t in opened.items()}


def expectations(path: Path) -> dict[str, Any]:
    """What the catalog of a warehouse says."""
    catalog = Catalog.open(path)
    found: dict[str, Any] = {
        "namespaces": catalog.namespaces(),
        "tables": {
            name: sorted(catalog.table(name).scan().to_arrow()["id"].to_pylist())
            for name in catalog.tables()
        },
    }
    kept = catalog.snapshots.list()
    if kept:
        found["snapshots"] = {
            each.name: [each.message, each.state, each.table_count, rows_of(catalog, each.name)]
            for each in kept
        }
    return found


def main() -> None:
    """Write what is missing."""
    for name, make in WAREHOUSES.items():
        if archive_of(FOLDER, name).exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / name
            make(made)
            pack(made, FOLDER)
            text = json.dumps(expectations(made), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

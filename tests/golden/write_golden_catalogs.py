"""Writes the golden warehouses that are not there yet; what is there is never touched.

    python -m tests.golden.write_golden_catalogs

Beside the directory of each stands what its catalog must say, as JSON.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fermion_table import Catalog
from tests.golden.catalog_features import WAREHOUSES

FOLDER = Path(__file__).resolve().parent / "catalogs" / "v1"


def expectations(path: Path) -> dict[str, Any]:
    """What the catalog of a warehouse says."""
    catalog = Catalog.open(path)
    return {
        "namespaces": catalog.namespaces(),
        "tables": {
            name: sorted(catalog.table(name).scan().to_arrow()["id"].to_pylist())
            for name in catalog.tables()
        },
    }


def main() -> None:
    """Write what is missing."""
    for name, make in WAREHOUSES.items():
        if (FOLDER / name).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / name
            make(made)
            shutil.copytree(made, FOLDER / name)
        text = json.dumps(expectations(FOLDER / name), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

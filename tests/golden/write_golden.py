"""Writes the golden files of features that have none of this version; none is touched again.

    python -m tests.golden.write_golden

Each lies in the folder of the first version that has all that the file has.
A golden file was written once, by the release that brought its feature, and is read by every later
one. Beside ``NAME.fermion`` stand the values it must give, as an Arrow file, and what Arrow has no
place for as JSON. ``SHA256SUMS`` tells a file that changed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa

import fermion
from fermion.columns.ordered_dictionaries import ordered_arrays
from fermion.columns.types import column_node
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES, LARGE_FEATURES

GOLDEN = Path(__file__).resolve().parent
SUMS = "SHA256SUMS"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def dictionaries(table: pa.Table) -> list[list[list]]:
    """The ordered dictionaries of each batch of a table, at any depth, one after the other."""
    return [
        [
            array.dictionary.to_pylist()
            for field, column in zip(batch.schema, batch.columns, strict=True)
            for _, array in ordered_arrays(column_node(field), column)
        ]
        for batch in table.to_batches()
    ]


def facts(feature: Feature, path: Path) -> dict[str, object]:
    """What a file must give besides its rows."""
    with fermion.open(path) as file:
        kept = file.read(filter=feature.filter).num_rows if feature.filter else None
        batches = None
        if feature.batches is not None:
            ids = file.read(["batch_id"])["batch_id"].to_pylist()
            batches = {str(each): ids.count(each) for each in dict.fromkeys(ids)}
        return {
            "metadata": feature.metadata,
            "stripe_rows": list(file.stripe_rows),
            "settings": file.settings,
            "filter": feature.filter,
            "filtered_rows": kept,
            "batches": batches,
            "positions": feature.index_in_batch() if feature.positions is not None else None,
            "dictionaries": dictionaries(feature.table) if feature.has_orders else None,
        }


def folder_of(feature: Feature) -> Path:
    """Where the files of a feature lie; those of version 1.0 are in ``v1``."""
    with fermion.open(feature.stored()) as file:
        return GOLDEN / "v{}.{}".format(*file.version)


def write(name: str, feature: Feature) -> list[Path]:
    """Write a golden file and what stands beside it.

    Raises
    ------
    FileExistsError
        There is one.
    """
    folder = folder_of(feature)
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}{suffix}" for suffix in (".fermion", ".arrow", ".json")]
    for path in paths:
        if path.exists():
            raise FileExistsError(path)
    stored, values, extra = paths
    feature.write(stored)
    table = feature.table.combine_chunks()
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(values), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=packed) as writer,
    ):
        writer.write_table(table)
    extra.write_text(json.dumps(facts(feature, stored), indent=1, ensure_ascii=False) + "\n")
    return paths


def main() -> None:
    """Write what is missing, and note its digests."""
    for name, build in sorted({**FEATURES, **LARGE_FEATURES}.items()):
        if name in LARGE_FEATURES and list(GOLDEN.glob(f"v*/{name}.fermion")):
            continue  # one is enough, of whichever version
        feature = build()
        folder = folder_of(feature)
        if (folder / f"{name}.fermion").exists():
            continue
        paths = write(name, feature)
        with (folder / SUMS).open("a", encoding="utf-8") as noted:
            noted.writelines(f"{digest(path)}  {path.name}\n" for path in paths)
        print(f"wrote {name}")


if __name__ == "__main__":
    main()

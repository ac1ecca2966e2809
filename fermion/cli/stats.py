"""`fermion stats`: what metadata alone says of the values of each column."""

from __future__ import annotations

import argparse
import decimal
from typing import TYPE_CHECKING, Any

from fermion.cli.console import Console
from fermion.cli.protocol import (
    KEYS_HINT,
    add_columns,
    add_storage_options,
    storage_options,
)
from fermion.display import counted, shortened
from fermion.exports import LoadedWhenAskedFor
from fermion.metadata.map_keys import VariantPaths
from fermion.reading.file import open_file
from fermion.reading.inspection import (
    LeafStatistics,
    bound_text,
    describe_statistics,
    stored_columns,
)
from fermion.reading.value_text import json_value

if TYPE_CHECKING:
    from fermion.blobs import references
else:  # few files have blobs
    references = LoadedWhenAskedFor("fermion.blobs.references")

HELP = "show bounds and counts of the columns, without reading values"
COLUMNS_SHOWN = 100
VALUE_LENGTH = 32
TYPE_LENGTH = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="path or URL of a Fermion file")
    add_columns(parser)
    parser.add_argument(
        "--all", action="store_true", help=f"show more than the first {COLUMNS_SHOWN} columns"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the statistics of a file."""
    with open_file(arguments.file, storage_options=storage_options(arguments)) as file:
        shown = stored_columns(file.index, arguments.column, arguments.keys)
        everything = arguments.all or arguments.json or arguments.column is not None
        left_out = 0 if everything else max(len(shown) - COLUMNS_SHOWN, 0)
        found = describe_statistics(file.index, shown[:COLUMNS_SHOWN] if left_out else shown)
        blobs = file.index.all_fields() if file.index.footer.has_blobs else []
        num_rows = file.num_rows
        keys = {file.index.all_names[at]: each for at, each in file.index.map_keys.items()}
    if arguments.json:
        leaves = [_leaf_json(leaf) for leaf in found]
        console.print_json({"num_rows": num_rows, "columns": leaves})
        return 0
    console.print(counted(num_rows, "row"))
    sized = {
        field.name for field in blobs if references.is_reference(field)
    }  # only their sizes are of use
    found = [leaf for leaf in found if leaf.path[0] not in sized or leaf.path[1:] == ("size",)]
    if found:
        header = ["column", "type", "nulls", "min", "max", "flags"]
        console.print_table(header, [_cells(leaf) for leaf in found], right=["nulls"])
    for name, each in keys.items() if arguments.keys is None else ():
        what = counted(each.count, "path" if isinstance(each, VariantPaths) else "key")
        console.print(f"{name}: {what} with a column {KEYS_HINT}")
    if left_out:
        console.print(f"... and {left_out:,} more (--all shows them)")
    return 0


def _cells(leaf: LeafStatistics) -> list[str]:
    flags = {
        "nan" if leaf.nan_count is None else f"{leaf.nan_count:,} nan": leaf.has_nan,
        leaf.is_sorted or "": leaf.is_sorted is not None,
        f"{leaf.distinct_count} distinct": leaf.distinct_count is not None,
        f"sum {leaf.sum}": leaf.sum is not None,
        "bloom filter": leaf.has_bloom_filter,
    }
    return [
        ".".join(leaf.path),
        shortened(str(leaf.type), TYPE_LENGTH),
        "?" if leaf.null_count is None else f"{leaf.null_count:,}",
        bound_text(leaf.min, VALUE_LENGTH, is_exact=leaf.min_exact) or "-",
        bound_text(leaf.max, VALUE_LENGTH, is_exact=leaf.max_exact) or "-",
        ", ".join(name for name, holds in flags.items() if holds),
    ]


def _leaf_json(leaf: LeafStatistics) -> dict[str, Any]:
    return {
        "path": list(leaf.path),
        "type": str(leaf.type),
        "rows": leaf.rows,
        "null_count": leaf.null_count,
        "min": json_value(leaf.min),
        "min_exact": leaf.min_exact,
        "max": json_value(leaf.max),
        "max_exact": leaf.max_exact,
        "has_nan": leaf.has_nan,
        "nan_count": leaf.nan_count,
        "sorted": leaf.is_sorted,
        "distinct_count": leaf.distinct_count,
        "sum": str(leaf.sum) if isinstance(leaf.sum, decimal.Decimal) else leaf.sum,
        "bloom_filter": leaf.has_bloom_filter,
    }

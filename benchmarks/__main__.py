"""All benchmarks, one after the other: ``python -m benchmarks [--size quick]``."""

from __future__ import annotations

import importlib
import sys
import time

from benchmarks import harness

FILES = (
    "open_wide",
    "slow_storage",
    "wide_file",
    "lineitem_size",
    "lineitem_read",
    "lineitem_write",
    "random_rows",
    "filters",
    "batch_ids",
    "nested_columns",
    "maps",
    "variant",
    "blobs",
    "peak_memory",
    "real_tables",
    "import_time",
    "cold",
    "memory",
    "training",
    "training_joins",
)
TABLES = (
    "table_commits",
    "small_commits",
    "table_planning",
    "table_scale",
    "table_batches",
    "table_compaction",
    "table_row_changes",
    "wide_append",
    "column_files",
    "indexes",
    "primary_key",
    "catalog",
    "table_limits",
)
QUESTIONS = FILES + TABLES


def main() -> int:
    """Run every question; one that fails does not stop the others."""
    options = harness.arguments("All benchmarks")
    only = options.only.split(",") if options.only else None
    failed = []
    for name in QUESTIONS:
        start = time.monotonic()
        question = importlib.import_module(f"benchmarks.{name}").QUESTION
        try:
            folder, rounds = harness.results_folder(options), options.rounds
            harness.run(question, options.size, only=only, rounds=rounds, folder=folder)
        except RuntimeError as error:
            failed.append(f"{name}: {error}")
        print(f"  ({name}: {time.monotonic() - start:.0f} s)\n", flush=True)
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

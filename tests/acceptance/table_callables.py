"""Which public functions and methods of tables need no valid call of their own, and why."""

from __future__ import annotations

from fermion_table.inspection.refs import Branches, Tags

ALSO = {Tags, Branches}
"""Classes that a table's attributes give."""
MADE_BY_THE_PACKAGE = {
    "BranchHead",
    "Catalog",
    "CatalogSnapshot",
    "CatalogSnapshots",
    "ChangePlan",
    "ChangeReader",
    "ChangeScan",
    "ChangeSplit",
    "CompactionGroup",
    "CompactionMessage",
    "CompactionResult",
    "ColumnTask",
    "CompactionTask",
    "DataWriter",
    "KeyWriter",
    "DroppedTable",
    "Effort",
    "Field",
    "FileSplit",
    "FinishedColumns",
    "FinishedFile",
    "HistoryLog",
    "MaintenanceResult",
    "MergeBuilder",
    "MergeResult",
    "PinnedTable",
    "PruningStep",
    "RepairResult",
    "Scan",
    "ScanPlan",
    "SchemaChange",
    "SchemaMerge",
    "SchemaUpdate",
    "Snapshot",
    "Split",
    "SplitReader",
    "StagedTable",
    "Table",
    "TableDiff",
    "TableSchema",
    "Tag",
    "Transaction",
    "VerifyReport",
    "WriterMessage",
}
"""What a table or one of its functions gives, which nobody else makes."""

BETWEEN_WRITERS = {
    "BufferPool.add",
    "BufferPool.discard",
    "BufferPool.flush",
    "KeyWriter.append_batch",
}
"""What writers call of their pool, with buffers of theirs; and what always refuses."""

BETWEEN_ENGINES = {
    "CatalogSnapshots.open",
    "FoundRows",
    "FoundRows.apply",
    "FoundRows.concerns",
    "FinishedColumns.discard",
    "ColumnTask.compute",
    "StatementWriter",
    "StatementWriter.write",
    "Table.at",
}
"""What an engine, or the package itself, makes of and calls with objects of the package."""

CALLED_FOR_EVERY_FILE = {
    "ChangeReader.read",
    "ChangeSplit.part",
    "Field.walk",
    "Field.with_children",
    "Snapshot.is_commit_of",
    "FileSplit.count",
    "FileSplit.with_data",
    "FileSplit.head",
    "FileSplit.part",
    "FileSplit.read",
    "Split.count",
    "Split.head",
    "Split.part",
    "Split.read",
    "SplitReader.batches",
    "SplitReader.count",
    "SplitReader.count_file",
    "SplitReader.find",
    "SplitReader.plan",
    "SplitReader.prune",
    "SplitReader.read",
    "SplitReader.read_file",
    "SplitReader.rows",
}
"""For engines, with what a scan's plan gives; checks would cost time for each field or file."""

"""Fermion tables: snapshots, schemas with field ids, many writers, time travel.

- `Table`: `create`, `open`; then `append`, `upsert`, `delete`, `merge`, `scan`, `lookup`,
  `compact`, `expire_snapshots`, `tags`, `branches` and more.
- `Scan`, which `Table.scan` gives: `to_arrow`, `to_pandas`, `to_polars`, `to_duckdb`.
- `Catalog`: tables by name; `from_paimon` imports one of Apache Paimon.
- Errors: `TableError` and its subclasses, in `fermion_table.errors`.
- The other names are what these give. What engines such as Spark use is in
  `fermion_table.engine`.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion_table.catalog.catalog import Catalog
    from fermion_table.catalog.snapshots import CatalogSnapshot
    from fermion_table.checks.repair import RepairResult, repair_table
    from fermion_table.checks.verify import VerifyReport
    from fermion_table.compaction.task import CompactionResult
    from fermion_table.errors import (
        ColumnFunctionError,
        CommitConflict,
        CommitStateUnknown,
        CorruptMetadata,
        MissingDataFile,
        SchemaMismatch,
        TableError,
        TableExists,
        TableNotFound,
        UnreadableMetadata,
        UnsafeStorage,
        UnsupportedFeature,
        VersionNotFound,
    )
    from fermion_table.expiry.drop import drop_table
    from fermion_table.expiry.maintenance import MaintenanceResult
    from fermion_table.inspection.table_difference import TableDiff
    from fermion_table.metadata.references import Tag
    from fermion_table.metadata.snapshot import Snapshot
    from fermion_table.operations.assignments import lit
    from fermion_table.operations.merge import MergeResult
    from fermion_table.operations.sql_expressions import SqlExpression
    from fermion_table.paimon.importing import from_paimon
    from fermion_table.planning.plan import ScanPlan
    from fermion_table.scanning.scan import Scan
    from fermion_table.schema.schema import Field, TableSchema
    from fermion_table.storage.store import StorageAccess
    from fermion_table.table.table import Table
    from fermion_table.writing.writer_message import WriteSettings

__getattr__ = load_when_asked_for(
    __name__,
    {
        "Catalog": "catalog.catalog",
        "CatalogSnapshot": "catalog.snapshots",
        "ColumnFunctionError": "errors",
        "CommitConflict": "errors",
        "CommitStateUnknown": "errors",
        "CompactionResult": "compaction.task",
        "CorruptMetadata": "errors",
        "Field": "schema.schema",
        "MaintenanceResult": "expiry.maintenance",
        "MissingDataFile": "errors",
        "MergeResult": "operations.merge",
        "RepairResult": "checks.repair",
        "Scan": "scanning.scan",
        "ScanPlan": "planning.plan",
        "SchemaMismatch": "errors",
        "Snapshot": "metadata.snapshot",
        "SqlExpression": "operations.sql_expressions",
        "StorageAccess": "storage.store",
        "Table": "table.table",
        "TableDiff": "inspection.table_difference",
        "TableError": "errors",
        "TableExists": "errors",
        "TableNotFound": "errors",
        "TableSchema": "schema.schema",
        "Tag": "metadata.references",
        "UnreadableMetadata": "errors",
        "UnsafeStorage": "errors",
        "UnsupportedFeature": "errors",
        "VerifyReport": "checks.verify",
        "VersionNotFound": "errors",
        "WriteSettings": "writing.writer_message",
        "drop_table": "expiry.drop",
        "from_paimon": "paimon.importing",
        "lit": "operations.assignments",
        "repair_table": "checks.repair",
    },
    moved_to_engine=(
        "BranchHead",
        "BufferPool",
        "CHANGE_FIELDS",
        "CatalogSnapshots",
        "ChangePlan",
        "ChangeReader",
        "ChangeScan",
        "ChangeSplit",
        "ColumnTask",
        "CommitMetadata",
        "CompactionGroup",
        "CompactionMessage",
        "CompactionTask",
        "DataWriter",
        "DroppedTable",
        "Effort",
        "FileSplit",
        "FinishedColumns",
        "FinishedFile",
        "FoundRows",
        "HistoryLog",
        "KeyWriter",
        "MAIN",
        "MergeBuilder",
        "PartitionTransform",
        "PinnedTable",
        "PruningStep",
        "SchemaChange",
        "SchemaMerge",
        "SchemaUpdate",
        "Split",
        "SplitReader",
        "StagedTable",
        "StatementWriter",
        "Transaction",
        "WriterMessage",
        "check_overwrite",
        "compact_group",
        "stage_table",
    ),
)

__all__ = [
    "Catalog",
    "CatalogSnapshot",
    "ColumnFunctionError",
    "CommitConflict",
    "CommitStateUnknown",
    "CompactionResult",
    "CorruptMetadata",
    "Field",
    "MaintenanceResult",
    "MergeResult",
    "MissingDataFile",
    "RepairResult",
    "Scan",
    "ScanPlan",
    "SchemaMismatch",
    "Snapshot",
    "SqlExpression",
    "StorageAccess",
    "Table",
    "TableDiff",
    "TableError",
    "TableExists",
    "TableNotFound",
    "TableSchema",
    "Tag",
    "UnreadableMetadata",
    "UnsafeStorage",
    "UnsupportedFeature",
    "VerifyReport",
    "VersionNotFound",
    "WriteSettings",
    "drop_table",
    "from_paimon",
    "lit",
    "repair_table",
]

__dir__ = __all__.copy

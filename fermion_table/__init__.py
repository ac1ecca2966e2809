"""Fermion tables: snapshots, schemas with field ids, many writers, time travel.

- `Table`: `create`, `open`; then `append`, `upsert`, `delete`, `merge`, `scan`, `lookup`,
  `compact`, `expire_snapshots`, `tags`, `branches` and more.
- `Scan`, which `Table.scan` gives: `to_arrow`, `to_pandas`, `to_polars`, `to_duckdb`.
- `Catalog`: tables by name.
- Errors: `TableError` and its subclasses, in `fermion_table.errors`.
- The other names are what these give, and what engines such as Spark use.
"""

from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.snapshots import CatalogSnapshot, CatalogSnapshots, PinnedTable
from fermion_table.change_feed.change_plan import ChangePlan, ChangeSplit
from fermion_table.change_feed.changes import CHANGE_FIELDS, ChangeReader, ChangeScan
from fermion_table.checks.repair import RepairResult, repair_table
from fermion_table.checks.verify import VerifyReport
from fermion_table.commit.publisher import SchemaMerge
from fermion_table.commit.request import CommitMetadata
from fermion_table.compaction.task import (
    CompactionGroup,
    CompactionMessage,
    CompactionResult,
    CompactionTask,
    compact_group,
)
from fermion_table.errors import (
    ColumnFunctionError,
    CommitConflict,
    CommitStateUnknown,
    CorruptMetadata,
    SchemaMismatch,
    TableError,
    TableExists,
    TableNotFound,
    UnreadableMetadata,
    UnsafeStorage,
    UnsupportedFeature,
    VersionNotFound,
)
from fermion_table.expiry.drop import DroppedTable, drop_table
from fermion_table.expiry.maintenance import MaintenanceResult
from fermion_table.inspection.history_log import HistoryLog
from fermion_table.inspection.refs import BranchHead
from fermion_table.inspection.table_difference import TableDiff
from fermion_table.metadata.references import Tag
from fermion_table.metadata.snapshot import Effort, Snapshot
from fermion_table.operations.column_task import ColumnTask, FinishedFile
from fermion_table.operations.computed_columns import FinishedColumns
from fermion_table.operations.found_rows import FoundRows
from fermion_table.operations.merge_builder import MergeBuilder, MergeResult
from fermion_table.operations.row_changes import check_overwrite
from fermion_table.operations.sql_expressions import SqlExpression
from fermion_table.operations.transaction import Transaction
from fermion_table.planning.file_split import FileSplit
from fermion_table.planning.plan import PruningStep, ScanPlan
from fermion_table.planning.split import Split
from fermion_table.reading.split_reader import SplitReader
from fermion_table.scanning.scan import Scan
from fermion_table.schema.difference import SchemaChange
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.schema.transforms import PartitionTransform
from fermion_table.schema.update import SchemaUpdate
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import StorageAccess
from fermion_table.table.staged import StagedTable, stage_table
from fermion_table.table.statement_writer import StatementWriter
from fermion_table.table.table import Table
from fermion_table.writing.buffer_pool import BufferPool
from fermion_table.writing.data_writer import DataWriter
from fermion_table.writing.key_writer import KeyWriter
from fermion_table.writing.settings import WriteSettings
from fermion_table.writing.writer_message import WriterMessage

__all__ = [
    "CHANGE_FIELDS",
    "MAIN",
    "BranchHead",
    "BufferPool",
    "Catalog",
    "CatalogSnapshot",
    "CatalogSnapshots",
    "ChangePlan",
    "ChangeReader",
    "ChangeScan",
    "ChangeSplit",
    "ColumnFunctionError",
    "ColumnTask",
    "CommitConflict",
    "CommitMetadata",
    "CommitStateUnknown",
    "CompactionGroup",
    "CompactionMessage",
    "CompactionResult",
    "CompactionTask",
    "CorruptMetadata",
    "DataWriter",
    "DroppedTable",
    "Effort",
    "Field",
    "FileSplit",
    "FinishedColumns",
    "FinishedFile",
    "FoundRows",
    "HistoryLog",
    "KeyWriter",
    "MaintenanceResult",
    "MergeBuilder",
    "MergeResult",
    "PartitionTransform",
    "PinnedTable",
    "PruningStep",
    "RepairResult",
    "Scan",
    "ScanPlan",
    "SchemaChange",
    "SchemaMerge",
    "SchemaMismatch",
    "SchemaUpdate",
    "Snapshot",
    "Split",
    "SplitReader",
    "SqlExpression",
    "StagedTable",
    "StatementWriter",
    "StorageAccess",
    "Table",
    "TableDiff",
    "TableError",
    "TableExists",
    "TableNotFound",
    "TableSchema",
    "Tag",
    "Transaction",
    "UnreadableMetadata",
    "UnsafeStorage",
    "UnsupportedFeature",
    "VerifyReport",
    "VersionNotFound",
    "WriteSettings",
    "WriterMessage",
    "check_overwrite",
    "compact_group",
    "drop_table",
    "repair_table",
    "stage_table",
]

__dir__ = __all__.copy

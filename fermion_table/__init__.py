"""Fermion tables: snapshots, schemas with field ids, many writers, time travel."""

from fermion_table.change_scan import ChangeScan
from fermion_table.compaction import (
    CompactionGroup,
    CompactionMessage,
    CompactionResult,
    CompactionTask,
    compact_group,
)
from fermion_table.data_writer import DataWriter, WriterMessage, WriteSettings
from fermion_table.errors import (
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
from fermion_table.history_log import HistoryLog
from fermion_table.maintenance import MaintenanceResult
from fermion_table.publishing import CommitWords, SchemaMerge
from fermion_table.references import Tag
from fermion_table.removal import DroppedTable, drop_table
from fermion_table.scan import Scan
from fermion_table.scan_plan import PruningStep, ScanPlan
from fermion_table.schema import Field, TableSchema
from fermion_table.schema_builder import SchemaUpdate
from fermion_table.schema_difference import SchemaChange
from fermion_table.snapshot import Effort, Snapshot
from fermion_table.split import Split
from fermion_table.split_reader import SplitReader
from fermion_table.staged_table import StagedTable, stage_table
from fermion_table.storage import StorageAccess
from fermion_table.table import Table
from fermion_table.table_difference import TableDiff
from fermion_table.transaction import Transaction
from fermion_table.transforms import PartitionTransform
from fermion_table.verify import VerifyReport
from fermion_table.version_names import BranchHead

__all__ = [
    "BranchHead",
    "ChangeScan",
    "CommitConflict",
    "CommitStateUnknown",
    "CommitWords",
    "CompactionGroup",
    "CompactionMessage",
    "CompactionResult",
    "CompactionTask",
    "CorruptMetadata",
    "DataWriter",
    "DroppedTable",
    "Effort",
    "Field",
    "HistoryLog",
    "MaintenanceResult",
    "PartitionTransform",
    "PruningStep",
    "Scan",
    "ScanPlan",
    "SchemaChange",
    "SchemaMerge",
    "SchemaMismatch",
    "SchemaUpdate",
    "Snapshot",
    "Split",
    "SplitReader",
    "StagedTable",
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
    "compact_group",
    "drop_table",
    "stage_table",
]

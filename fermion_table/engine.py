"""What engines such as Spark use of tables, besides what `fermion_table` exports.

An engine plans in one process, reads and writes in others, and commits once: `SplitReader`,
`WriterMessage`, `CompactionTask` and what belongs to them. These names are for integrations, and
may change between minor versions.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion_table.catalog.directories import WarehouseNames
    from fermion_table.catalog.snapshots import CatalogSnapshots, PinnedTable
    from fermion_table.catalog.transactions import CatalogTransaction
    from fermion_table.catalog.view import CatalogView
    from fermion_table.change_feed.change_plan import ChangePlan, ChangeSplit, TreeChanges
    from fermion_table.change_feed.changes import CHANGE_FIELDS, ChangeReader, ChangeScan
    from fermion_table.commit.request import CommitMetadata
    from fermion_table.commit.schema_versions import SchemaMerge
    from fermion_table.compaction.task import (
        CompactionGroup,
        CompactionMessage,
        CompactionTask,
        compact_group,
    )
    from fermion_table.expiry.drop import DroppedTable
    from fermion_table.inspection.history_log import HistoryLog
    from fermion_table.inspection.refs import BranchHead
    from fermion_table.merging.primary_key import PrimaryKey, primary_key_of, required_key
    from fermion_table.metadata.consumers import Consumer
    from fermion_table.metadata.snapshot import Effort
    from fermion_table.mirrors.copies import CopyTask
    from fermion_table.mirrors.publish import Publication
    from fermion_table.operations.assignments import LiteralValue
    from fermion_table.operations.column_task import ColumnTask, FinishedFile
    from fermion_table.operations.computed_columns import FinishedColumns
    from fermion_table.operations.found_rows import FoundRows
    from fermion_table.operations.merge import MergeBuilder
    from fermion_table.operations.merge_clauses import (
        SOURCE,
        TARGET,
        Clause,
        MergeClauses,
        MergeDescription,
    )
    from fermion_table.operations.merge_matching import MergeCounts
    from fermion_table.operations.merge_source import check_on
    from fermion_table.operations.row_changes import check_overwrite
    from fermion_table.operations.transaction import Transaction
    from fermion_table.planning.plan import PruningStep
    from fermion_table.planning.split import FileSplit, Split, task_bytes
    from fermion_table.reading.split_reader import SplitReader
    from fermion_table.schema.difference import SchemaChange
    from fermion_table.schema.properties import spelled_columns
    from fermion_table.schema.transforms import PartitionTransform
    from fermion_table.schema.update import SchemaUpdate
    from fermion_table.storage.owned_files import OwnedFiles
    from fermion_table.storage.paths import MAIN
    from fermion_table.table.staged import StagedTable, stage_table
    from fermion_table.table.statement_writer import StatementWriter
    from fermion_table.trees.section_reader import split_text, splits_from_text
    from fermion_table.writing.buffer_pool import BufferPool
    from fermion_table.writing.data_writer import DataWriter
    from fermion_table.writing.debezium import changes_in
    from fermion_table.writing.key_writer import KeyWriter
    from fermion_table.writing.make_writer import write_changes
    from fermion_table.writing.writer_message import WriterMessage

__getattr__ = load_when_asked_for(
    "fermion_table",
    {
        "BranchHead": "inspection.refs",
        "BufferPool": "writing.buffer_pool",
        "CHANGE_FIELDS": "change_feed.changes",
        "CatalogSnapshots": "catalog.snapshots",
        "CatalogTransaction": "catalog.transactions",
        "CatalogView": "catalog.view",
        "ChangePlan": "change_feed.change_plan",
        "ChangeReader": "change_feed.changes",
        "ChangeScan": "change_feed.changes",
        "ChangeSplit": "change_feed.change_plan",
        "Clause": "operations.merge_clauses",
        "ColumnTask": "operations.column_task",
        "CommitMetadata": "commit.request",
        "CompactionGroup": "compaction.task",
        "CompactionMessage": "compaction.task",
        "CompactionTask": "compaction.task",
        "Consumer": "metadata.consumers",
        "CopyTask": "mirrors.copies",
        "DataWriter": "writing.data_writer",
        "DroppedTable": "expiry.drop",
        "Effort": "metadata.snapshot",
        "FileSplit": "planning.split",
        "FinishedColumns": "operations.computed_columns",
        "FinishedFile": "operations.column_task",
        "FoundRows": "operations.found_rows",
        "HistoryLog": "inspection.history_log",
        "KeyWriter": "writing.key_writer",
        "LiteralValue": "operations.assignments",
        "MAIN": "storage.paths",
        "MergeBuilder": "operations.merge",
        "MergeClauses": "operations.merge_clauses",
        "MergeCounts": "operations.merge_matching",
        "MergeDescription": "operations.merge_clauses",
        "OwnedFiles": "storage.owned_files",
        "PartitionTransform": "schema.transforms",
        "PinnedTable": "catalog.snapshots",
        "PrimaryKey": "merging.primary_key",
        "PruningStep": "planning.plan",
        "Publication": "mirrors.publish",
        "SOURCE": "operations.merge_clauses",
        "SchemaChange": "schema.difference",
        "SchemaMerge": "commit.schema_versions",
        "SchemaUpdate": "schema.update",
        "Split": "planning.split",
        "SplitReader": "reading.split_reader",
        "StagedTable": "table.staged",
        "StatementWriter": "table.statement_writer",
        "TARGET": "operations.merge_clauses",
        "Transaction": "operations.transaction",
        "TreeChanges": "change_feed.change_plan",
        "WarehouseNames": "catalog.directories",
        "WriterMessage": "writing.writer_message",
        "changes_in": "writing.debezium",
        "check_on": "operations.merge_source",
        "check_overwrite": "operations.row_changes",
        "compact_group": "compaction.task",
        "primary_key_of": "merging.primary_key",
        "required_key": "merging.primary_key",
        "spelled_columns": "schema.properties",
        "split_text": "trees.section_reader",
        "splits_from_text": "trees.section_reader",
        "stage_table": "table.staged",
        "task_bytes": "planning.split",
        "write_changes": "writing.make_writer",
    },
    into=__name__,
)

__all__ = [
    "CHANGE_FIELDS",
    "MAIN",
    "SOURCE",
    "TARGET",
    "BranchHead",
    "BufferPool",
    "CatalogSnapshots",
    "CatalogTransaction",
    "CatalogView",
    "ChangePlan",
    "ChangeReader",
    "ChangeScan",
    "ChangeSplit",
    "Clause",
    "ColumnTask",
    "CommitMetadata",
    "CompactionGroup",
    "CompactionMessage",
    "CompactionTask",
    "Consumer",
    "CopyTask",
    "DataWriter",
    "DroppedTable",
    "Effort",
    "FileSplit",
    "FinishedColumns",
    "FinishedFile",
    "FoundRows",
    "HistoryLog",
    "KeyWriter",
    "LiteralValue",
    "MergeBuilder",
    "MergeClauses",
    "MergeCounts",
    "MergeDescription",
    "OwnedFiles",
    "PartitionTransform",
    "PinnedTable",
    "PrimaryKey",
    "PruningStep",
    "Publication",
    "SchemaChange",
    "SchemaMerge",
    "SchemaUpdate",
    "Split",
    "SplitReader",
    "StagedTable",
    "StatementWriter",
    "Transaction",
    "TreeChanges",
    "WarehouseNames",
    "WriterMessage",
    "changes_in",
    "check_on",
    "check_overwrite",
    "compact_group",
    "primary_key_of",
    "required_key",
    "spelled_columns",
    "split_text",
    "splits_from_text",
    "stage_table",
    "task_bytes",
    "write_changes",
]

__dir__ = __all__.copy

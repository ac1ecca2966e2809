"""What engines such as Spark use of tables, besides what `fermion_table` exports.

An engine plans in one process, reads and writes in others, and commits once: `SplitReader`,
`WriterMessage`, `CompactionTask` and what belongs to them. These names are for integrations, and
may change between minor versions.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion_table.catalog.directories import WarehouseNames as WarehouseNames
    from fermion_table.catalog.snapshots import CatalogSnapshots as CatalogSnapshots
    from fermion_table.catalog.snapshots import PinnedTable as PinnedTable
    from fermion_table.catalog.transactions import CatalogTransaction as CatalogTransaction
    from fermion_table.catalog.transactions import TransactionTable as TransactionTable
    from fermion_table.catalog.view import CatalogView as CatalogView
    from fermion_table.change_feed.change_plan import ChangePlan as ChangePlan
    from fermion_table.change_feed.change_plan import ChangeSplit as ChangeSplit
    from fermion_table.change_feed.change_plan import TreeChanges as TreeChanges
    from fermion_table.change_feed.changes import CHANGE_FIELDS as CHANGE_FIELDS
    from fermion_table.change_feed.changes import ChangeReader as ChangeReader
    from fermion_table.change_feed.changes import ChangeScan as ChangeScan
    from fermion_table.commit.request import CommitMetadata as CommitMetadata
    from fermion_table.commit.schema_versions import SchemaMerge as SchemaMerge
    from fermion_table.compaction.task import CompactionGroup as CompactionGroup
    from fermion_table.compaction.task import CompactionMessage as CompactionMessage
    from fermion_table.compaction.task import CompactionTask as CompactionTask
    from fermion_table.compaction.task import compact_group as compact_group
    from fermion_table.expiry.drop import DroppedTable as DroppedTable
    from fermion_table.inspection.history_log import HistoryLog as HistoryLog
    from fermion_table.inspection.refs import BranchHead as BranchHead
    from fermion_table.merging.primary_key import PrimaryKey as PrimaryKey
    from fermion_table.merging.primary_key import primary_key_of as primary_key_of
    from fermion_table.merging.primary_key import required_key as required_key
    from fermion_table.metadata.consumers import Consumer as Consumer
    from fermion_table.metadata.snapshot import Effort as Effort
    from fermion_table.mirrors.copies import CopyTask as CopyTask
    from fermion_table.mirrors.publish import Publication as Publication
    from fermion_table.operations.assignments import LiteralValue as LiteralValue
    from fermion_table.operations.column_task import ColumnTask as ColumnTask
    from fermion_table.operations.column_task import FinishedFile as FinishedFile
    from fermion_table.operations.computed_columns import FinishedColumns as FinishedColumns
    from fermion_table.operations.found_rows import FoundRows as FoundRows
    from fermion_table.operations.merge import MergeBuilder as MergeBuilder
    from fermion_table.operations.merge_clauses import SOURCE as SOURCE
    from fermion_table.operations.merge_clauses import TARGET as TARGET
    from fermion_table.operations.merge_clauses import Clause as Clause
    from fermion_table.operations.merge_clauses import MergeClauses as MergeClauses
    from fermion_table.operations.merge_clauses import MergeDescription as MergeDescription
    from fermion_table.operations.merge_matching import MergeCounts as MergeCounts
    from fermion_table.operations.merge_source import check_on as check_on
    from fermion_table.operations.row_changes import check_overwrite as check_overwrite
    from fermion_table.operations.transaction import Transaction as Transaction
    from fermion_table.planning.plan import PruningStep as PruningStep
    from fermion_table.planning.split import FileSplit as FileSplit
    from fermion_table.planning.split import Split as Split
    from fermion_table.planning.split import first_rows as first_rows
    from fermion_table.planning.split import task_bytes as task_bytes
    from fermion_table.reading.split_reader import SplitReader as SplitReader
    from fermion_table.scanning.parts import ScanPart as ScanPart
    from fermion_table.scanning.parts import planned_parts as planned_parts
    from fermion_table.schema.difference import SchemaChange as SchemaChange
    from fermion_table.schema.properties import spelled_columns as spelled_columns
    from fermion_table.schema.selection import named_keys as named_keys
    from fermion_table.schema.transforms import PartitionTransform as PartitionTransform
    from fermion_table.schema.update import SchemaUpdate as SchemaUpdate
    from fermion_table.storage.owned_files import OwnedFiles as OwnedFiles
    from fermion_table.storage.paths import MAIN as MAIN
    from fermion_table.table.staged import StagedTable as StagedTable
    from fermion_table.table.staged import stage_table as stage_table
    from fermion_table.table.statement_writer import StatementWriter as StatementWriter
    from fermion_table.trees.section_reader import split_text as split_text
    from fermion_table.trees.section_reader import splits_from_text as splits_from_text
    from fermion_table.writing.buffer_pool import BufferPool as BufferPool
    from fermion_table.writing.data_writer import DataWriter as DataWriter
    from fermion_table.writing.debezium import changes_in as changes_in
    from fermion_table.writing.key_writer import KeyWriter as KeyWriter
    from fermion_table.writing.make_writer import write_changes as write_changes
    from fermion_table.writing.writer_message import WriterMessage as WriterMessage

__all__, __getattr__, __dir__ = load_when_asked_for(
    "fermion_table",
    {
        "catalog.directories": ("WarehouseNames",),
        "catalog.snapshots": ("CatalogSnapshots", "PinnedTable"),
        "catalog.transactions": ("CatalogTransaction", "TransactionTable"),
        "catalog.view": ("CatalogView",),
        "change_feed.change_plan": ("ChangePlan", "ChangeSplit", "TreeChanges"),
        "change_feed.changes": ("CHANGE_FIELDS", "ChangeReader", "ChangeScan"),
        "commit.request": ("CommitMetadata",),
        "commit.schema_versions": ("SchemaMerge",),
        "compaction.task": (
            "CompactionGroup",
            "CompactionMessage",
            "CompactionTask",
            "compact_group",
        ),
        "expiry.drop": ("DroppedTable",),
        "inspection.history_log": ("HistoryLog",),
        "inspection.refs": ("BranchHead",),
        "merging.primary_key": ("PrimaryKey", "primary_key_of", "required_key"),
        "metadata.consumers": ("Consumer",),
        "metadata.snapshot": ("Effort",),
        "mirrors.copies": ("CopyTask",),
        "mirrors.publish": ("Publication",),
        "operations.assignments": ("LiteralValue",),
        "operations.column_task": ("ColumnTask", "FinishedFile"),
        "operations.computed_columns": ("FinishedColumns",),
        "operations.found_rows": ("FoundRows",),
        "operations.merge": ("MergeBuilder",),
        "operations.merge_clauses": (
            "SOURCE",
            "TARGET",
            "Clause",
            "MergeClauses",
            "MergeDescription",
        ),
        "operations.merge_matching": ("MergeCounts",),
        "operations.merge_source": ("check_on",),
        "operations.row_changes": ("check_overwrite",),
        "operations.transaction": ("Transaction",),
        "planning.plan": ("PruningStep",),
        "planning.split": ("FileSplit", "Split", "first_rows", "task_bytes"),
        "reading.split_reader": ("SplitReader",),
        "scanning.parts": ("ScanPart", "planned_parts"),
        "schema.difference": ("SchemaChange",),
        "schema.properties": ("spelled_columns",),
        "schema.selection": ("named_keys",),
        "schema.transforms": ("PartitionTransform",),
        "schema.update": ("SchemaUpdate",),
        "storage.owned_files": ("OwnedFiles",),
        "storage.paths": ("MAIN",),
        "table.staged": ("StagedTable", "stage_table"),
        "table.statement_writer": ("StatementWriter",),
        "trees.section_reader": ("split_text", "splits_from_text"),
        "writing.buffer_pool": ("BufferPool",),
        "writing.data_writer": ("DataWriter",),
        "writing.debezium": ("changes_in",),
        "writing.key_writer": ("KeyWriter",),
        "writing.make_writer": ("write_changes",),
        "writing.writer_message": ("WriterMessage",),
    },
    into=__name__,
)

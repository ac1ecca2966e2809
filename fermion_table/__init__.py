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
    from fermion_table.catalog.catalog import Catalog as Catalog
    from fermion_table.catalog.snapshots import CatalogSnapshot as CatalogSnapshot
    from fermion_table.checks.repair import RepairResult as RepairResult
    from fermion_table.checks.repair import repair_table as repair_table
    from fermion_table.checks.verify import VerifyReport as VerifyReport
    from fermion_table.compaction.task import CompactionResult as CompactionResult
    from fermion_table.errors import ColumnFunctionError as ColumnFunctionError
    from fermion_table.errors import CommitConflict as CommitConflict
    from fermion_table.errors import CommitStateUnknown as CommitStateUnknown
    from fermion_table.errors import CorruptMetadata as CorruptMetadata
    from fermion_table.errors import MissingDataFile as MissingDataFile
    from fermion_table.errors import SchemaMismatch as SchemaMismatch
    from fermion_table.errors import TableError as TableError
    from fermion_table.errors import TableExists as TableExists
    from fermion_table.errors import TableNotFound as TableNotFound
    from fermion_table.errors import UnreadableMetadata as UnreadableMetadata
    from fermion_table.errors import UnsafeStorage as UnsafeStorage
    from fermion_table.errors import UnsupportedFeature as UnsupportedFeature
    from fermion_table.errors import VersionNotFound as VersionNotFound
    from fermion_table.expiry.drop import drop_table as drop_table
    from fermion_table.expiry.maintenance import MaintenanceResult as MaintenanceResult
    from fermion_table.inspection.table_difference import TableDiff as TableDiff
    from fermion_table.metadata.references import Tag as Tag
    from fermion_table.metadata.snapshot import Snapshot as Snapshot
    from fermion_table.operations.assignments import lit as lit
    from fermion_table.operations.merge import MergeResult as MergeResult
    from fermion_table.operations.sql_expressions import SqlExpression as SqlExpression
    from fermion_table.paimon.importing import from_paimon as from_paimon
    from fermion_table.planning.plan import ScanPlan as ScanPlan
    from fermion_table.scanning.scan import Scan as Scan
    from fermion_table.schema.schema import Field as Field
    from fermion_table.schema.schema import TableSchema as TableSchema
    from fermion_table.storage.store import StorageAccess as StorageAccess
    from fermion_table.table.table import Table as Table
    from fermion_table.writing.writer_message import WriteSettings as WriteSettings

__all__, __getattr__, __dir__ = load_when_asked_for(
    __name__,
    {
        "catalog.catalog": ("Catalog",),
        "catalog.snapshots": ("CatalogSnapshot",),
        "checks.repair": ("RepairResult", "repair_table"),
        "checks.verify": ("VerifyReport",),
        "compaction.task": ("CompactionResult",),
        "errors": (
            "ColumnFunctionError",
            "CommitConflict",
            "CommitStateUnknown",
            "CorruptMetadata",
            "MissingDataFile",
            "SchemaMismatch",
            "TableError",
            "TableExists",
            "TableNotFound",
            "UnreadableMetadata",
            "UnsafeStorage",
            "UnsupportedFeature",
            "VersionNotFound",
        ),
        "expiry.drop": ("drop_table",),
        "expiry.maintenance": ("MaintenanceResult",),
        "inspection.table_difference": ("TableDiff",),
        "metadata.references": ("Tag",),
        "metadata.snapshot": ("Snapshot",),
        "operations.assignments": ("lit",),
        "operations.merge": ("MergeResult",),
        "operations.sql_expressions": ("SqlExpression",),
        "paimon.importing": ("from_paimon",),
        "planning.plan": ("ScanPlan",),
        "scanning.scan": ("Scan",),
        "schema.schema": ("Field", "TableSchema"),
        "storage.store": ("StorageAccess",),
        "table.table": ("Table",),
        "writing.writer_message": ("WriteSettings",),
    },
    moved_to_engine=True,
)

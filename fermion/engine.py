"""What packages above and engines use of the file format, besides what `fermion` exports.

Not for users: these names may change in any release.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion.bounded_cache import BoundedCache
    from fermion.columns.arrow_input import (
        BatchCopier,
        copied_array,
        is_in_memory,
        is_of_pandas,
        read_all,
        record_batch_reader,
    )
    from fermion.columns.exchange import bare_batch, convert_batch, convert_batches
    from fermion.columns.file_input import InputFiles
    from fermion.columns.filled import check_filled, filled_bytes
    from fermion.columns.rows import (
        drop_batch_rows,
        filter_batch_rows,
        joined_batches,
        one_batch,
        take_batch_rows,
        take_table_rows,
        unwrapped,
    )
    from fermion.columns.types import child_fields, with_wide_floats
    from fermion.columns.value_text import value_text
    from fermion.html.page import WebPage, web_page
    from fermion.io.checksum import crc32c
    from fermion.io.read_ahead import iterate_ahead, read_ahead
    from fermion.io.remote import (
        ask,
        connect,
        http_status,
        is_denied_object,
        is_missing,
        is_refused_range,
        protocols,
        refuse_credentials,
        renames_in_one_step,
        storage_error,
    )
    from fermion.io.sink import open_sink
    from fermion.parquet.source import ParquetSource
    from fermion.predicate.blocks import blocks_that_may_match
    from fermion.predicate.polars_expression import filter_of_predicate
    from fermion.reading.training_blocks import FileBlocks
    from fermion.sql.engine import isolated_database, load_duckdb
    from fermion.sql.expressions import SqlExpressions
    from fermion.statistics.bounds import EXACT_FLAGS
    from fermion.statistics.bounds import unknown as unknown_statistics
    from fermion.statistics.keys import unscaled_integer
    from fermion.training.batch import TrainingBatch
    from fermion.training.blocks import OnDamage
    from fermion.training.blocks import Rows as BlockRows
    from fermion.training.blocks import Units as TrainingUnits
    from fermion.training.epoch import Last
    from fermion.training.order import Shuffle
    from fermion.training.reader import (
        EpochBatches,
        TrainingOptions,
        TrainingReader,
        TrainingStats,
    )
    from fermion.writing.file_copy import copy_file

__getattr__ = load_when_asked_for(
    "fermion",
    {
        "ask": "io.remote",
        "connect": "io.remote",
        "http_status": "io.remote",
        "is_denied_object": "io.remote",
        "is_missing": "io.remote",
        "is_refused_range": "io.remote",
        "protocols": "io.remote",
        "refuse_credentials": "io.remote",
        "renames_in_one_step": "io.remote",
        "storage_error": "io.remote",
        "BatchCopier": "columns.arrow_input",
        "BlockRows": "training.blocks:Rows",
        "BoundedCache": "bounded_cache",
        "blocks_that_may_match": "predicate.blocks",
        "bare_batch": "columns.exchange",
        "convert_batch": "columns.exchange",
        "convert_batches": "columns.exchange",
        "EXACT_FLAGS": "statistics.bounds",
        "InputFiles": "columns.file_input",
        "ParquetSource": "parquet.source",
        "SqlExpressions": "sql.expressions",
        "FileBlocks": "reading.training_blocks",
        "Last": "training.epoch",
        "OnDamage": "training.blocks",
        "Shuffle": "training.order",
        "TrainingBatch": "training.batch",
        "TrainingOptions": "training.reader",
        "TrainingReader": "training.reader",
        "TrainingStats": "training.reader",
        "EpochBatches": "training.reader",
        "TrainingUnits": "training.blocks:Units",
        "copied_array": "columns.arrow_input",
        "copy_file": "writing.file_copy",
        "WebPage": "html.page",
        "child_fields": "columns.types",
        "check_filled": "columns.filled",
        "crc32c": "io.checksum",
        "drop_batch_rows": "columns.rows",
        "filled_bytes": "columns.filled",
        "filter_of_predicate": "predicate.polars_expression",
        "filter_batch_rows": "columns.rows",
        "is_in_memory": "columns.arrow_input",
        "is_of_pandas": "columns.arrow_input",
        "isolated_database": "sql.engine",
        "iterate_ahead": "io.read_ahead",
        "joined_batches": "columns.rows",
        "load_duckdb": "sql.engine",
        "one_batch": "columns.rows",
        "open_sink": "io.sink",
        "read_ahead": "io.read_ahead",
        "read_all": "columns.arrow_input",
        "record_batch_reader": "columns.arrow_input",
        "take_batch_rows": "columns.rows",
        "take_table_rows": "columns.rows",
        "unknown_statistics": "statistics.bounds:unknown",
        "unscaled_integer": "statistics.keys",
        "unwrapped": "columns.rows",
        "value_text": "columns.value_text",
        "web_page": "html.page",
        "with_wide_floats": "columns.types",
    },
    into=__name__,
)

__all__ = [
    "EXACT_FLAGS",
    "BatchCopier",
    "BlockRows",
    "BoundedCache",
    "EpochBatches",
    "FileBlocks",
    "InputFiles",
    "Last",
    "OnDamage",
    "ParquetSource",
    "Shuffle",
    "SqlExpressions",
    "TrainingBatch",
    "TrainingOptions",
    "TrainingReader",
    "TrainingStats",
    "TrainingUnits",
    "WebPage",
    "ask",
    "bare_batch",
    "blocks_that_may_match",
    "check_filled",
    "child_fields",
    "connect",
    "convert_batch",
    "convert_batches",
    "copied_array",
    "copy_file",
    "crc32c",
    "drop_batch_rows",
    "filled_bytes",
    "filter_batch_rows",
    "filter_of_predicate",
    "http_status",
    "is_denied_object",
    "is_in_memory",
    "is_missing",
    "is_of_pandas",
    "is_refused_range",
    "isolated_database",
    "iterate_ahead",
    "joined_batches",
    "load_duckdb",
    "one_batch",
    "open_sink",
    "protocols",
    "read_ahead",
    "read_all",
    "record_batch_reader",
    "refuse_credentials",
    "renames_in_one_step",
    "storage_error",
    "take_batch_rows",
    "take_table_rows",
    "unknown_statistics",
    "unscaled_integer",
    "unwrapped",
    "value_text",
    "web_page",
    "with_wide_floats",
]

__dir__ = __all__.copy

"""What packages above and engines use of the file format, besides what `fermion` exports.

Not for users: these names may change in any release.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion.bounded_cache import BoundedCache as BoundedCache
    from fermion.columns.arrow_buffers import PLAIN as PLAIN
    from fermion.columns.arrow_buffers import array_of as array_of
    from fermion.columns.arrow_buffers import numbers_of as numbers_of
    from fermion.columns.arrow_input import BatchCopier as BatchCopier
    from fermion.columns.arrow_input import copied_array as copied_array
    from fermion.columns.arrow_input import is_in_memory as is_in_memory
    from fermion.columns.arrow_input import is_of_pandas as is_of_pandas
    from fermion.columns.arrow_input import read_all as read_all
    from fermion.columns.arrow_input import record_batch_reader as record_batch_reader
    from fermion.columns.exchange import bare_batch as bare_batch
    from fermion.columns.exchange import convert_batch as convert_batch
    from fermion.columns.exchange import convert_batches as convert_batches
    from fermion.columns.file_input import InputFiles as InputFiles
    from fermion.columns.filled import check_filled as check_filled
    from fermion.columns.filled import filled_bytes as filled_bytes
    from fermion.columns.maps import has_shreddable_keys as has_shreddable_keys
    from fermion.columns.maps import key_name as key_name
    from fermion.columns.maps import keys_to_shred as keys_to_shred
    from fermion.columns.maps import looked_up as looked_up
    from fermion.columns.maps import parse_key as parse_key
    from fermion.columns.maps import split_key_name as split_key_name
    from fermion.columns.maps import with_values as with_values
    from fermion.columns.python_values import check_kept as check_kept
    from fermion.columns.rows import drop_batch_rows as drop_batch_rows
    from fermion.columns.rows import field_within as field_within
    from fermion.columns.rows import filter_batch_rows as filter_batch_rows
    from fermion.columns.rows import joined_batches as joined_batches
    from fermion.columns.rows import one_batch as one_batch
    from fermion.columns.rows import stable_order as stable_order
    from fermion.columns.rows import take_batch_rows as take_batch_rows
    from fermion.columns.rows import take_table_rows as take_table_rows
    from fermion.columns.rows import unwrapped as unwrapped
    from fermion.columns.types import child_fields as child_fields
    from fermion.columns.types import is_variant as is_variant
    from fermion.columns.types import know_variant as know_variant
    from fermion.columns.types import strip_wrappers as strip_wrappers
    from fermion.columns.types import with_leaf_types as with_leaf_types
    from fermion.columns.types import with_wide_floats as with_wide_floats
    from fermion.columns.variants import VariantType as VariantType
    from fermion.columns.variants import paths_to_shred as paths_to_shred
    from fermion.html.page import WebPage as WebPage
    from fermion.html.page import web_page as web_page
    from fermion.io.checksum import crc32c as crc32c
    from fermion.io.read_ahead import iterate_ahead as iterate_ahead
    from fermion.io.read_ahead import read_ahead as read_ahead
    from fermion.io.remote import ask as ask
    from fermion.io.remote import connect as connect
    from fermion.io.remote import http_status as http_status
    from fermion.io.remote import is_denied_object as is_denied_object
    from fermion.io.remote import is_missing as is_missing
    from fermion.io.remote import is_refused_range as is_refused_range
    from fermion.io.remote import protocols as protocols
    from fermion.io.remote import refuse_credentials as refuse_credentials
    from fermion.io.remote import renames_in_one_step as renames_in_one_step
    from fermion.io.remote import storage_error as storage_error
    from fermion.io.sink import Sink as Sink
    from fermion.io.sink import open_sink as open_sink
    from fermion.io.source import open_source as open_source
    from fermion.parquet.source import ParquetSource as ParquetSource
    from fermion.predicate import VariantValue as VariantValue
    from fermion.predicate.arrow_expression import pyarrow_columns as pyarrow_columns
    from fermion.predicate.blocks import blocks_that_may_match as blocks_that_may_match
    from fermion.predicate.polars_expression import filter_of_predicate as filter_of_predicate
    from fermion.predicate.sql import with_sizes as with_sizes
    from fermion.predicate.variant_value import PrunedVariant as PrunedVariant
    from fermion.predicate.variant_value import check_variant as check_variant
    from fermion.predicate.variant_value import parse_value as parse_value
    from fermion.reading.training_blocks import FileBlocks as FileBlocks
    from fermion.reading.value_text import value_text as value_text
    from fermion.sql.engine import isolated_database as isolated_database
    from fermion.sql.engine import load_duckdb as load_duckdb
    from fermion.sql.expressions import SqlExpressions as SqlExpressions
    from fermion.sql.expressions import alike as alike
    from fermion.sql.expressions import folded as folded
    from fermion.statistics.bloom import BloomFilters as BloomFilters
    from fermion.statistics.bloom import bloom_filter_of as bloom_filter_of
    from fermion.statistics.bounds import EXACT_FLAGS as EXACT_FLAGS
    from fermion.statistics.bounds import unknown_statistics as unknown_statistics
    from fermion.statistics.keys import unscaled_integer as unscaled_integer
    from fermion.training.batch import TrainingBatch as TrainingBatch
    from fermion.training.blocks import BLOCK_ROWS as BLOCK_ROWS
    from fermion.training.blocks import BlockRows as BlockRows
    from fermion.training.blocks import OnDamage as OnDamage
    from fermion.training.blocks import TrainingUnits as TrainingUnits
    from fermion.training.epoch import Last as Last
    from fermion.training.order import Shuffle as Shuffle
    from fermion.training.reader import EpochBatches as EpochBatches
    from fermion.training.reader import TrainingOptions as TrainingOptions
    from fermion.training.reader import TrainingReader as TrainingReader
    from fermion.training.reader import TrainingStats as TrainingStats
    from fermion.variant import parse_path as parse_path
    from fermion.writing.file_copy import copy_file as copy_file

__all__, __getattr__, __dir__ = load_when_asked_for(
    "fermion",
    {
        "bounded_cache": ("BoundedCache",),
        "columns.arrow_buffers": ("PLAIN", "array_of", "numbers_of"),
        "columns.arrow_input": (
            "BatchCopier",
            "copied_array",
            "is_in_memory",
            "is_of_pandas",
            "read_all",
            "record_batch_reader",
        ),
        "columns.exchange": ("bare_batch", "convert_batch", "convert_batches"),
        "columns.file_input": ("InputFiles",),
        "columns.filled": ("check_filled", "filled_bytes"),
        "columns.maps": (
            "has_shreddable_keys",
            "key_name",
            "keys_to_shred",
            "looked_up",
            "parse_key",
            "split_key_name",
            "with_values",
        ),
        "columns.python_values": ("check_kept",),
        "columns.rows": (
            "drop_batch_rows",
            "field_within",
            "filter_batch_rows",
            "joined_batches",
            "one_batch",
            "stable_order",
            "take_batch_rows",
            "take_table_rows",
            "unwrapped",
        ),
        "columns.types": (
            "child_fields",
            "is_variant",
            "know_variant",
            "strip_wrappers",
            "with_leaf_types",
            "with_wide_floats",
        ),
        "columns.variants": ("VariantType", "paths_to_shred"),
        "html.page": ("WebPage", "web_page"),
        "io.checksum": ("crc32c",),
        "io.read_ahead": ("iterate_ahead", "read_ahead"),
        "io.remote": (
            "ask",
            "connect",
            "http_status",
            "is_denied_object",
            "is_missing",
            "is_refused_range",
            "protocols",
            "refuse_credentials",
            "renames_in_one_step",
            "storage_error",
        ),
        "io.sink": ("Sink", "open_sink"),
        "io.source": ("open_source",),
        "parquet.source": ("ParquetSource",),
        "predicate": ("VariantValue",),
        "predicate.arrow_expression": ("pyarrow_columns",),
        "predicate.blocks": ("blocks_that_may_match",),
        "predicate.polars_expression": ("filter_of_predicate",),
        "predicate.sql": ("with_sizes",),
        "predicate.variant_value": ("PrunedVariant", "check_variant", "parse_value"),
        "reading.training_blocks": ("FileBlocks",),
        "reading.value_text": ("value_text",),
        "sql.engine": ("isolated_database", "load_duckdb"),
        "sql.expressions": ("SqlExpressions", "alike", "folded"),
        "statistics.bloom": ("BloomFilters", "bloom_filter_of"),
        "statistics.bounds": ("EXACT_FLAGS", "unknown_statistics"),
        "statistics.keys": ("unscaled_integer",),
        "training.batch": ("TrainingBatch",),
        "training.blocks": ("OnDamage", "BLOCK_ROWS", "BlockRows", "TrainingUnits"),
        "training.epoch": ("Last",),
        "training.order": ("Shuffle",),
        "training.reader": ("EpochBatches", "TrainingOptions", "TrainingReader", "TrainingStats"),
        "variant": ("parse_path",),
        "writing.file_copy": ("copy_file",),
    },
    into=__name__,
)

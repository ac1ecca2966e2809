"""Histories of primary-key tables give what Paimon's library returned, after every commit.

All rows up to a commit are folded at once. Left out are histories whose result depends on how rows
were grouped into commits, and combinations that are refused here for the same reason.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import Folded, group_rows, is_retraction
from fermion_table.schema.key_encoding import encode_keys, key_ranks
from fermion_table.schema.key_options import KeyOptions
from tests.kit import folds
from tests.kit.tables.keyed_model import merged
from tests.kit.tables.merge_rows import batch_of, kinds_of
from tests.kit.tables.paimon_histories import (
    FILES,
    histories,
    is_left_out,
    options_of,
    rows_of,
    shown,
)


def folded(rows: list[dict], schema: pa.Schema, key: list[str], options: KeyOptions) -> list[dict]:
    """Return the rows that a scan returns, in the order of the keys."""
    kinds = kinds_of(rows)
    if options.ignore_delete:
        rows = [row for row, is_back in zip(rows, is_retraction(kinds), strict=True) if not is_back]
        kinds = kinds_of(rows)
    batch = batch_of(rows, schema)
    groups = group_rows(
        key_ranks(encode_keys([batch.column(name) for name in key], key)),
        np.arange(len(rows)),
        sequence=[batch.column(name) for name in options.sequence_fields],
        is_descending=options.sequence_descending,
    )
    found = fold_by(options, batch, groups, kinds, key)
    return found.gather(batch).to_pylist()


def fold_by(options: KeyOptions, batch, groups, kinds, key) -> Folded:
    engine, removes = options.merge_engine, options.remove_record_on_delete
    if engine == "deduplicate":
        return folds.deduplicate(groups, kinds)
    if engine == "first_row":
        return folds.first_row(groups, kinds)
    if engine == "partial_update":
        return folds.partial_update(batch, groups, key, kinds, remove_record_on_delete=removes)
    return folds.aggregation(
        batch, groups, options.functions, kinds, remove_record_on_delete=removes
    )


def rounds(options: KeyOptions, schema: pa.Schema) -> bool:
    """Whether results are rounded to the scale of a column, which the model does not do."""
    return any(
        function.name == "product" and pa.types.is_decimal(schema.field(name).type)
        for name, function in options.functions.items()
    )


@pytest.mark.parametrize("name", FILES)
def test_folding_gives_what_paimon_returned_after_each_commit(name, shared_data):
    compared = 0
    for history in histories(name, shared_data):
        if is_left_out(history) or history["error"]:
            continue
        schema, options = options_of(history)
        key, rows = history["primary_key"], []
        for commit, expected in zip(history["commits"], history["expected_after"], strict=True):
            rows += rows_of(commit, schema)
            found = folded(rows, schema, key, options)
            wanted = batch_of(rows_of(expected, schema), schema).to_pylist()
            assert shown(found, key) == shown(wanted, key), history["name"]
            if rounds(options, schema):
                continue
            modelled = batch_of(merged(rows, schema.names, key, options), schema).to_pylist()
            assert shown(modelled, key) == shown(wanted, key), history["name"]
        compared += 1
    assert compared >= {"deduplicate": 55, "sequence-field": 50, "partial-update": 20}.get(name, 15)


@pytest.mark.parametrize("name", FILES)
def test_what_paimon_refuses_as_invalid_is_refused(name, shared_data):
    for history in histories(name, shared_data):
        refused = (history["error"] or {}).get("class") in ("invalid", "overflow")
        if refused and "not-null" not in history["name"]:
            with pytest.raises(InvalidArgumentError):
                fold_whole(history)


def fold_whole(history: dict) -> list[dict]:
    """Return what the whole history gives."""
    schema, options = options_of(history)
    rows = [row for commit in history["commits"] for row in rows_of(commit, schema)]
    return folded(rows, schema, history["primary_key"], options)

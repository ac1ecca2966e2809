"""Options of format("fermion") are checked by name and form, in any case of letters."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from fermion.errors import InvalidArgumentError
from spark_ext.options import parse_columns, parse_options


def test_names_are_taken_in_any_case():
    options = parse_options(
        {
            "PATH": "memory://t",
            "asOf": "2024-02-29T12:00:00Z",
            "batchId": "-1",
            "MAXFILESPERTRIGGER": "7",
        }
    )
    assert (options.path, options.max_files, options.batch_id) == ("memory://t", 7, -1)
    assert options.as_of == datetime(2024, 2, 29, 12, tzinfo=UTC)


def test_local_paths_become_absolute():
    assert parse_options({"path": "a/b"}).path == os.path.join(os.getcwd(), "a", "b")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "t", "snapshot_id": "1"}, "did you mean 'snapshotId'"),
        ({"path": "t", "clusterBy": "a"}, "have no option 'clusterby'"),
        ({"path": "t", "mergeSchema": "1"}, "expected true or false"),
        ({"path": "t", "partitionOverwriteMode": "on"}, "expected static or dynamic"),
        ({"path": "t", "snapshotId": "one"}, "snapshotId='one': expected an integer"),
        ({"path": "t", "asOf": "yesterday"}, "option asOf='yesterday': expected ISO 8601"),
        ({"path": "t", "columns": "[1]"}, "expected a list of names"),
        ({"path": "t", "columns": "[a"}, "option columns="),
        ({"path": "t", "skipRewrites": "maybe"}, "expected true or false"),
        ({"tag": "t"}, "no path"),
        ({"paths": '["a", "b"]'}, "one table"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, said):
    with pytest.raises(InvalidArgumentError, match=said):
        parse_options(given)


def test_a_secret_is_neither_in_an_error_nor_in_a_representation():
    secret = {"path": "t", "storageOptions": '{"secret": "hunter2"'}
    with pytest.raises(InvalidArgumentError) as caught:
        parse_options(secret)
    assert "hunter2" not in str(caught.value)
    fine = parse_options({"path": "t", "storageOptions": '{"secret": "hunter2"}'})
    assert fine.storage_options == {"secret": "hunter2"}
    assert "hunter2" not in repr(fine)


def test_columns_are_names_with_commas_or_a_json_list():
    assert parse_columns("a, b.c ,d") == ["a", "b.c", "d"]
    assert parse_columns('["a,b", "c"]') == ["a,b", "c"]
    assert parse_columns("") == []

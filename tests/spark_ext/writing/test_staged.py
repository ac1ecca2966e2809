"""The option in which a catalog tells the data source what is created or replaced."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.writing.staged import STAGED_OPTION, StagedDefinition, split_staged

SCHEMA = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"comment": "words"})])


def test_a_definition_survives_its_text(table_path):
    definition = StagedDefinition(
        mode="create",
        schema=SCHEMA,
        partition_by=["bucket(4, a)"],
        primary_key=[],
        sort_by=[],
        properties={"x.x": "y"},
    )
    back = StagedDefinition.from_text(definition.to_text())
    assert back == definition
    assert back.schema.equals(SCHEMA, check_metadata=True)
    back.stage(str(table_path), None).commit()
    table = Table.open(table_path)
    assert table.schema.fields[0].comment == "words"
    assert (table.properties, len(table.schema.partition_by)) == ({"x.x": "y"}, 1)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"schema": "AAAA"}', '{"schema": 7, "mode": 1}']
)
def test_an_option_that_no_catalog_wrote_is_refused(text):
    others, staged = split_staged({"path": "t", STAGED_OPTION.upper(): text})
    assert (others, staged) == ({"path": "t"}, text)
    with pytest.raises(InvalidArgumentError, match="set by the catalog alone"):
        StagedDefinition.from_text(text)

"""Properties of CREATE TABLE that name columns."""

from __future__ import annotations

import pytest
from pyspark.sql import types as st

from spark_ext.catalog.descriptions import Description
from spark_ext.catalog.layout import names_text

SCHEMA = st.StructType([st.StructField(name, st.LongType()) for name in ("Id", "a,b", "[c")])


@pytest.mark.parametrize("case_sensitive", [False, True])
def test_properties_name_columns_in_any_case_unless_the_session_tells_cases_apart(case_sensitive):
    made = Description(SCHEMA, [], {"primary_key": "iD", "sort_by": "Id"}, case_sensitive)
    assert made.definition("create").primary_key == ["iD" if case_sensitive else "Id"]
    assert made.definition("create").sort_by == ["Id"]


def test_names_with_commas_are_listed_as_json_and_shown_so():
    """What a table shows makes the same table again."""
    for names in (["Id", "a,b"], ["[c", "Id"], ["Id"]):
        made = Description(SCHEMA, [], {"sort_by": names_text(names)})
        assert made.definition("create").sort_by == names
    assert names_text(["Id", "x"]) == "Id, x"

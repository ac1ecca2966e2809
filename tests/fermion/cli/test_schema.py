"""`fermion schema`: names, types, ids and metadata."""

from __future__ import annotations

from tests.kit.command_line import output, printed_json


def test_schema_shows_names_types_ids_and_metadata(capsys, sample):
    lines = output(capsys, "schema", sample).splitlines()
    assert lines[:3] == ["id: int64, field id 7", "price: double", "name: string"]
    assert lines[5:7] == ["schema metadata:", "  origin: here"]
    assert lines[8] == f"  note: {'n' * 97}..."
    found = printed_json(capsys, "schema", sample)
    assert [column["name"] for column in found["columns"]] == [
        "id",
        "price",
        "name",
        "s",
        "nothing",
    ]
    assert found["columns"][0]["field_id"] == 7
    assert [child["name"] for child in found["columns"][3]["children"]] == ["x", "tags"]
    assert found["metadata"] == {"origin": "here"}
    assert found["key_value_metadata"] == {"note": "n" * 300}

"""`fermion table tag`: tags are made, listed and deleted."""

from __future__ import annotations

from typing import Any

from fermion_table import Table


def test_tags_are_made_listed_and_deleted(run: Any, json_of: Any, table: Table) -> None:
    assert run("tag") == "no tags\n"
    assert (
        run("tag", "v1", "--version", 2, "-m", "first", "--keep", "30d") == "tag v1: snapshot 2\n"
    )
    assert json_of("tag", "v2") == {"name": "v2", "snapshot_id": 5}
    assert run("tag").splitlines()[1].split()[:2] == ["v1", "2"]
    assert [row["name"] for row in json_of("tag")] == ["v1", "v2"]
    first = table.tags.list()[0]
    assert first.message == "first"
    assert (first.expires_ms or 0) - first.created_ms == 30 * 86_400_000
    assert run("tag", "v1", "--delete") == "deleted tag v1\n"
    assert "'v1'" in run("tag", "v1", "--delete", status=1)
    assert "expected a name" in run("tag", "--delete", status=2)
    assert "expected an age" in run("tag", "v3", "--keep", "2026-01-01", status=2)

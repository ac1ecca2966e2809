"""Settings of every merge engine, the kinds of rows that it takes, and rows for it."""

from __future__ import annotations

import random

ADDS = ["+I", "+U"]
ALL = ["+I", "-U", "+U", "-D"]
REMOVES = ["+I", "+U", "-D"]
ENGINES = {
    "deduplicate": ({}, ALL),
    "deduplicate by sequence": ({"sequence.field": "s"}, ALL),
    "deduplicate by descending sequence": (
        {"sequence.field": "s", "sequence.field.sort_order": "descending"},
        ALL,
    ),
    "deduplicate without deletes": ({"ignore_delete": "true"}, ALL),
    "first_row": ({"merge_engine": "first_row"}, ADDS),
    "partial_update": ({"merge_engine": "partial_update"}, ADDS),
    "partial_update that removes": (
        {"merge_engine": "partial_update", "partial_update.remove_record_on_delete": "true"},
        REMOVES,
    ),
    "partial_update in groups": (
        {"merge_engine": "partial_update", "fields.s.sequence_group": "v"},
        ALL,
    ),
    "aggregation": (
        {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"},
        ADDS,
    ),
    "aggregation with retractions": (
        {
            "merge_engine": "aggregation",
            "fields.v.aggregate_function": "sum",
            "fields.s.aggregate_function": "last_value",
        },
        ALL,
    ),
    "aggregation that removes": (
        {
            "merge_engine": "aggregation",
            "fields.v.aggregate_function": "sum",
            "aggregation.remove_record_on_delete": "true",
        },
        REMOVES,
    ),
    "aggregation by sequence": (
        {
            "merge_engine": "aggregation",
            "sequence.field": "s",
            "fields.v.aggregate_function": "sum",
            "fields.p.aggregate_function": "last_value",
        },
        ALL,
    ),
}


def rows_for(choice: random.Random, kinds: list[str], count: int) -> list[dict]:
    """Rows of few keys; values may be null."""
    return [
        {
            "k": choice.randrange(9),
            "p": choice.choice([None, *range(5)]),
            "s": choice.choice([None, *range(4)]),
            "v": choice.choice([None, *range(100)]),
            "_kind": choice.choice(kinds),
        }
        for _ in range(count)
    ]

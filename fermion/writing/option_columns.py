"""Whether the columns that a writer's options name are there, and can have what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fermion.arguments import first_repeated
from fermion.columns.types import Node, Order
from fermion.encodings.choice.choose import check_forced
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.encoding import Encoding
from fermion.encodings.registry import selectable
from fermion.errors import InvalidArgumentError
from fermion.layout import EncodingId
from fermion.options import WriteOptions
from fermion.writing.column import ColumnPlans

Leaves = Sequence[tuple[str, Node]]


def check_option_columns(options: WriteOptions, plans: ColumnPlans) -> None:
    """Refuse options that name what the schema lacks, or ask of a column what it cannot have.

    Parameters
    ----------
    plans
        Of the columns.

    Raises
    ------
    InvalidArgumentError
    """
    columns = set(plans.names) if options.column_page_bytes else set()
    for name in options.column_page_bytes:
        if name not in columns:
            raise InvalidArgumentError(
                f"column_page_bytes names column {name!r}, which the schema lacks"
            )
    _check_sort_keys(options, plans)
    filtered = {
        "bloom_filters": options.bloom_filters,
        "page_bloom_filters": options.page_bloom_filters,
        "summaries": options.summaries,
    }
    named = [*options.encodings, *options.global_dictionaries]
    for names in filtered.values():
        named += names
    if not isinstance(options.statistics, bool):
        named += options.statistics
    if not named:
        return
    leaves = [each for plan in plans for each in plan.leaves()]
    known = {name for name, _ in leaves} | {plan.node.name for plan in plans}
    for name in named:
        if name not in known:
            raise InvalidArgumentError(f"options name column {name!r}, which the schema lacks")
    _check_encodings(options, leaves)
    scalars = {".".join(path) for plan in plans for path in plan.paths.values()}
    unordered = {name for name, leaf in leaves if leaf.order is Order.NONE}
    for option, name in [(option, name) for option, names in filtered.items() for name in names]:
        if name not in scalars or name in unordered:
            raise InvalidArgumentError(
                f"{option}: column {name!r} is not a scalar of a type with equality"
            )
    shared = {plan.names[stream] for plan in plans for stream in plan.dictionaries}
    for name in options.global_dictionaries:
        if name not in shared:
            raise InvalidArgumentError(
                f"global_dictionaries: column {name!r} has no values that a dictionary can hold"
            )
        if name in options.encodings:
            raise InvalidArgumentError(
                f"column {name!r} has both a global dictionary and a forced encoding"
            )


def _check_sort_keys(options: WriteOptions, plans: ColumnPlans) -> None:
    names = {key.name for key in options.sort_keys}
    for plan in plans if names else ():
        if plan.node.name in names and plan.node.order is Order.NONE:
            raise InvalidArgumentError(
                f"sorted_by: column {plan.node.name!r} is {plan.node.type}, which has no order"
            )


def _check_encodings(options: WriteOptions, leaves: Leaves) -> None:
    physical: dict[str, list[Any]] = {}
    for name, leaf in leaves if options.encodings else ():
        physical.setdefault(name, []).append(leaf.physical)
    for name, encoding in options.encodings.items():
        held = physical.get(name)
        if not held:
            raise InvalidArgumentError(
                f"encodings: column {name!r} has no values of its own; name a field within it"
            )
        for each in held:
            assert each is not None
            try:
                check_forced(encoding, each)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"encodings: column {name!r}: {error}") from None
        _check_edition(options, selectable(encoding), f"encodings: column {name!r}")


def _check_edition(options: WriteOptions, encoding: Encoding, wanted: str) -> None:
    if isinstance(encoding.id, EncodingId):
        options.check_edition(encoding.id, wanted)
    elif encoding.id not in policy_for(options).settings.encodings:
        raise InvalidArgumentError(
            f"{wanted}: edition {options.edition!r} lacks the encoding {encoding.name}"
        )


def physical_order(names: Sequence[str], first: Sequence[str], where: str) -> Sequence[int]:
    """Ordinals of all columns in the order of their data: those named first, then the others.

    Parameters
    ----------
    names
        Of the schema's columns, in its order; those of one name stay together.
    first
        Names of columns.

    Raises
    ------
    InvalidArgumentError
        A name is not there, or named twice.
    """
    if not first:
        return range(len(names))
    known: dict[str, list[int]] = {name: [] for name in names}
    for ordinal, name in enumerate(names):
        known[name].append(ordinal)
    ordinals: list[int] = []
    repeated = first_repeated(first)
    if repeated is not None:
        raise InvalidArgumentError(f"{where}: column_order names column {repeated!r} twice")
    for name in first:
        if name not in known:
            raise InvalidArgumentError(
                f"{where}: column_order names column {name!r}, which the schema lacks"
            )
        ordinals += known[name]
    chosen = set(ordinals)
    return [*ordinals, *(each for each in range(len(names)) if each not in chosen)]

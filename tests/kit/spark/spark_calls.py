"""A valid call of every public function for Spark, with a session that nothing may be asked of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as st

import spark_ext
from fermion_table import StorageAccess, Table
from fermion_table.training import FeatureSource
from tests.acceptance.wrong_arguments import TEXTS, Case

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])
UNTYPED = {"filter": TEXTS | {"None"}}


class Unused:
    """Fails whoever asks for more than the attributes that it was made with."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the session was asked for {name}")


SESSION = Unused(sparkContext=Unused(_jsc=object(), pythonExec="python", master="yarn"))


class Frame(DataFrame):
    """Columns of a frame that has no rows and no plan."""

    def __new__(cls) -> Frame:
        return object.__new__(cls)

    def __init__(self) -> None:
        """Nothing is known but the columns."""

    sparkSession = SESSION  # type: ignore[assignment]  # noqa: N815 - Spark's name
    schema = st.StructType(  # type: ignore[assignment]
        [st.StructField("id", st.LongType()), st.StructField("part", st.LongType())]
    )


def prepare(directory: Path) -> None:
    """A table of two small files, partitioned, one with a primary key, and a Parquet file."""
    table = Table.create(directory / "t", SCHEMA, partition_by="part")
    for number in (1, 2):
        table.append({"id": [number], "part": [2]})
    table.mirrors.create("delta", directory / "mirror")
    Table.create(directory / "k", SCHEMA, primary_key=["id"]).upsert({"id": [1], "part": [2]})
    pq.write_table(pa.table({"id": [1], "part": [2]}), directory / "a.parquet")


def _case(
    function: Callable[..., Any], place: str | None = "t", /, **arguments: Any
) -> Callable[[Path], Case]:
    def case(directory: Path) -> Case:
        def state() -> Any:
            tables = [Table.open(directory / name) for name in ("t", "k")]
            return [(each.snapshot.id, each.schema, each.scan().count()) for each in tables]

        placed = {} if place is None else {"path": str(directory / place)}
        for name, value in arguments.items():
            placed[name] = str(directory / value) if isinstance(value, Path) else value
        return Case(function, placed, state)

    return case


def _with_options_of(option_owner: Callable[..., Any]) -> Callable[..., Any]:
    """`write` with the options of another function as parameters of its own."""

    def write(**arguments: Any) -> Any:
        return spark_ext.write(**arguments)

    own = inspect.signature(spark_ext.write).parameters
    parameters = {name: each for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
    parameters |= inspect.signature(option_owner).parameters
    keywords = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters.values()]
    write.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return write


def _merged(**arguments: Any) -> Any:
    """A merge of one clause."""
    return spark_ext.merge(**arguments).when_matched_delete().execute()


_merged.__signature__ = inspect.signature(spark_ext.merge)  # type: ignore[attr-defined]
_ACCESS = {"storage_options": None, "access": StorageAccess()}
_READ = {"columns": None, "filter": None, "snapshot_id": None, "tag": None}
_WORDS = {"message": "m", "commit_user": "u", "commit_identifier": 1}
_WRITE = {
    "df": Frame(),
    "batch_id_column": None,
    "schema_mode": None,
    "cluster": True,
    "properties": {"a": "b"},
    "branch": None,
    **_WORDS,
    **_ACCESS,
}
_UPSERT = {**_WRITE, "change_type": None}
del _UPSERT["batch_id_column"]
_REPLACE = {**_WRITE, "filter": None, "dynamic": False}
_MADE = {"partition_by": None, "sort_by": None, "table_properties": None}
_SPARK = {"spark": SESSION}
_AGE = {"older_than": None, "dry_run": False}

CALLS: dict[str, Callable[[Path], Case]] = {
    "append": _case(spark_ext.append, **_WRITE),
    "upsert": _case(spark_ext.upsert, "k", **_UPSERT, format=None),
    "merge": _case(
        _merged,
        **_SPARK,
        source=Frame(),
        on=["id"],
        properties={"a.b": "c"},
        branch=None,
        **_WORDS,
        **_ACCESS,
    ),
    "overwrite": _case(spark_ext.overwrite, **_REPLACE),
    "write": _case(spark_ext.write, "new", df=Frame(), mode="error", **_MADE, **_ACCESS),
    "read_table": _case(
        spark_ext.read_table,
        **_SPARK,
        **_READ,
        as_of=None,
        batch_id=None,
        branch=None,
        blobs="bytes",
        **_ACCESS,
    ),
    "read_changes": _case(
        spark_ext.read_changes,
        **_SPARK,
        start=1,
        end=2,
        columns=None,
        filter=None,
        branch=None,
        **_ACCESS,
    ),
    "training_frame": lambda directory: _case(
        spark_ext.training_frame,
        None,
        **_SPARK,
        labels=Table.open(directory / "t"),
        sources=[FeatureSource(Table.open(directory / "k"), ["id"], "part")],
        time="part",
        as_known_at=None,
    )(directory),
    "add_columns_with": _case(
        spark_ext.add_columns_with,
        **_SPARK,
        function=lambda rows: {"more": rows["id"]},
        read=["id"],
        schema=pa.schema([("more", pa.int64())]),
        batch_rows=100,
        progress=None,
        resume=None,
        message="why",
        branch=None,
        **_ACCESS,
    ),
    "compact": _case(
        spark_ext.compact,
        **_SPARK,
        filter=None,
        target_size=None,
        min_input_files=2,
        sort_by=None,
        full=False,
        max_groups_per_commit=None,
        dry_run=False,
        progress=None,
        **_ACCESS,
    ),
    "mirror": _case(
        spark_ext.mirror, **_SPARK, name=None, branch=None, mirror_storage_options=None, **_ACCESS
    ),
    "expire": _case(spark_ext.expire, **_SPARK, **_AGE, retain_last=None, **_ACCESS),
    "remove_orphans": _case(spark_ext.remove_orphans, **_SPARK, **_AGE, **_ACCESS),
    "from_parquet": _case(
        spark_ext.from_parquet,
        "new",
        **_SPARK,
        source=Path("a.parquet"),
        partition_by=None,
        **_WORDS,
        **_ACCESS,
    ),
    "to_parquet": _case(spark_ext.to_parquet, **_SPARK, target=Path("out"), **_READ, **_ACCESS),
    "register": _case(spark_ext.register, None, **_SPARK),
    "configure": _case(
        spark_ext.configure, None, builder=SimpleNamespace(), catalogs={"lake": "warehouse"}
    ),
    "install_catalog": _case(
        spark_ext.install_catalog, None, **_SPARK, name="lake", warehouse=Path("w"), **_ACCESS
    ),
}
"""By the name of the function; parameters without an entry are found by the test."""

FURTHER_CALLS: dict[str, Callable[[Path], Case]] = {
    "write a new table as append": _case(
        _with_options_of(spark_ext.append), "new", mode="append", **_WRITE, **_MADE
    ),
    "write a new table as overwrite": _case(
        _with_options_of(spark_ext.overwrite), "new", mode="overwrite", **_REPLACE, **_MADE
    ),
    "write a table that exists": _case(
        _with_options_of(spark_ext.overwrite), mode="overwrite", **_REPLACE, **_MADE
    ),
    "from_parquet to a table that exists": _case(
        spark_ext.from_parquet,
        **_SPARK,
        source=Path("a.parquet"),
        partition_by=None,
        **_WORDS,
        **_ACCESS,
    ),
}
"""The same functions where other checks decide."""

"""Every option of every job is given wrong values: one clear line, and exit status 2."""

from __future__ import annotations

import re
import shutil
from types import ModuleType

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_ext import session
from spark_ext.jobs import (
    append,
    compact,
    expire,
    from_parquet,
    merge,
    program,
    remove_orphans,
    to_parquet,
    upsert,
)
from tests.acceptance.wrong_arguments import contents
from tests.kit.spark.spark_calls import SESSION, Unused, prepare

JOBS: dict[str, ModuleType] = {
    job.__name__.rpartition(".")[2]: job
    for job in (append, compact, expire, from_parquet, merge, remove_orphans, to_parquet, upsert)
}
FLAGS = {
    "dry_run",
    "full",
    "help",
    "insert",
    "json",
    "nanoseconds",
    "overwrite",
    "overwrite_partitions",
    "update",
}
"""They take no value."""
DATA_DECIDE = {
    "batch_id_column",
    "change_type",
    "column",
    "delete_not_matched_by_source",
    "delete_when",
    "format",
    "insert_when",
    "message",
    "on",
    "partition_by",
    "path",
    "schema",
    "sort_by",
    "source",
    "target",
}
"""Any text has the right form: whether it names something is the table's or the source's to say."""
WRONG: dict[str, list[str]] = {
    "change_format": ["avro"],
    "commit_identifier": ["5"],  # without a user
    "commit_user": ["me"],  # without an identifier
    "compression": ["banana"],
    "conf": ["nothing"],
    "filter": ["id =", "id = = 1"],
    "master": ["nonsense"],
    "max_groups_per_commit": ["x", "1.5", "0", "-1"],
    "min_input_files": ["x", "1.5"],
    "older_than": ["soon", "-1d", "7"],
    "option": ["nothing"],
    "overwrite_where": ["id ="],
    "retain_last": ["x", "1.5", "-1"],
    "schema_mode": ["upsert"],
    "snapshot_id": ["x", "1.5"],
    "storage_option": ["nothing"],
    "target_size": ["huge", "0", "-1", "1.5"],
    "update_set": ["nothing"],
    "update_when": ["source.x > 1"],  # without --update
}
OPTIONS = [
    (name, action.dest)
    for name, job in JOBS.items()
    for action in job.parser()._actions
    if action.dest not in FLAGS
]


@pytest.fixture
def started(monkeypatch):
    """Spark does not start: a job gets a session that nothing may be asked of."""
    spark = Unused(**vars(SESSION), stop=lambda: None)
    monkeypatch.setattr(program, "_start", lambda name, options: spark)
    return spark


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tables")
    prepare(directory)
    return directory


def run(job: ModuleType, arguments: list[str]) -> int:
    try:
        return job.main(arguments)
    except SystemExit as error:
        return error.code


def places(name: str, directory) -> list[str]:
    table, parquet, new = (str(directory / each) for each in ("t", "a.parquet", "new"))
    return {
        "append": [table, parquet],
        "from_parquet": [parquet, table],
        "merge": [table, parquet, "--on=id", "--insert"],
        "to_parquet": [table, new],
        "upsert": [str(directory / "k"), parquet],
    }.get(name, [table])


def test_every_option_of_a_job_has_wrong_values():
    """A new option, which this fails for, needs them, or its place among the others."""
    assert {dest for _, dest in OPTIONS} == WRONG.keys() | DATA_DECIDE


@pytest.mark.parametrize(("name", "dest"), [each for each in OPTIONS if each[1] in WRONG])
def test_a_wrong_value_of_an_option_is_one_line_and_status_2(
    started, prepared, tmp_path, capsys, monkeypatch, name, dest
):
    """The line names the option, or the parameter of that name; nothing changes."""
    directory = shutil.copytree(prepared, tmp_path / "tables")
    if dest == "master":
        monkeypatch.undo()
        monkeypatch.setattr(session, "check_java", lambda: None)
        monkeypatch.setattr(SparkSession.Builder, "getOrCreate", no_such_master)
    before = contents(directory)
    option = "--" + dest.replace("_", "-")
    for value in WRONG[dest]:
        status = run(JOBS[name], [*places(name, directory), f"{option}={value}"])
        said = capsys.readouterr().err
        assert (status, said.count("\n")) == (program.WRONG_USAGE, 1), (value, said)
        assert re.search(rf"{option}\b|\b{dest}\b", said), said
        assert contents(directory) == before


def no_such_master(builder):
    raise Py4JError("An error occurred while calling o1.x: Could not parse Master URL: 'nonsense'")

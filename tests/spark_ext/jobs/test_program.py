"""The jobs as programs: arguments, summaries, exit statuses."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fermion_table import Table
from spark_ext.jobs import (
    append,
    compact,
    expire,
    from_parquet,
    program,
    remove_orphans,
    to_parquet,
)
from spark_ext.maintenance import compaction

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def in_this_session(spark, monkeypatch):
    """Jobs run in the tests' session."""
    monkeypatch.setattr(program, "_start", lambda name, options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)


def small_files(path, count):
    table = Table.create(path, SCHEMA)
    for number in range(count):
        table.append(pa.table({"id": [number], "name": ["x"]}, SCHEMA))
    return table


@pytest.mark.long
@pytest.mark.spark
def test_spark_submit_runs_a_job_that_prints_one_json_object(
    table_path, tmp_path, project_environment
):
    """In a process of its own, as a user starts it; the settings are those of spark-submit."""
    table = small_files(table_path, 3)
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        [*command, compact.__file__, str(table_path), "--json", "--target-size", "64MB"],
        cwd=tmp_path,
        env=project_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["files_before"] == 3
    assert summary["files_after"] == 1
    assert summary["snapshots"] == [4]
    assert table.refresh().totals.files == 1
    assert "[Stage" not in done.stderr  # progress is for terminals


@pytest.mark.spark
def test_dry_runs_say_what_would_be_done_and_change_nothing(
    in_this_session, table_path, tmp_path, capsys
):
    """The other jobs' dry runs come before what they do, in tests of their own."""
    table = small_files(table_path, 3)
    assert compact.main([str(table_path), "--dry-run"]) == 0
    assert "files before:" in capsys.readouterr().out
    assert compact.main([str(table_path), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["dry_run"], planned["groups"], planned["files_before"]) == (True, 1, 3)
    assert "snapshots" not in planned
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    source = str(tmp_path / "a.parquet")
    assert append.main([str(table_path), source, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["dry_run"], planned["columns"]) == (True, ["id"])
    assert table.refresh().id == 3


@pytest.mark.spark
def test_files_of_other_formats_are_appended(in_this_session, table_path, tmp_path, capsys):
    table = Table.create(table_path, SCHEMA)
    (tmp_path / "a.csv").write_text("id,name\n1,one\n2,two\n")
    source = [str(tmp_path / "a.csv"), "--format", "csv", "--option", "header=true"]
    words = ["--schema", "id bigint, name string", "--message", "from a file", "--json"]
    assert append.main([str(table_path), *source, *words]) == 0
    assert json.loads(capsys.readouterr().out)["rows_added"] == 2
    assert table.refresh().message == "from a file"
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "name": "one"},
        {"id": 2, "name": "two"},
    ]


@pytest.mark.spark
def test_files_take_the_place_of_rows(in_this_session, table_path, tmp_path, capsys):
    table = small_files(table_path, 3)
    source = str(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("7,seven\n")
    form = ["--format", "csv", "--schema", "id bigint, name string"]
    assert append.main([str(table_path), source, *form, "--overwrite-where", "id = 1"]) == 0
    table.refresh()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 2, 7]
    assert append.main([str(table_path), source, *form, "--overwrite"]) == 0
    table.refresh()
    assert table.scan().to_arrow()["id"].to_pylist() == [7]


@pytest.mark.spark
def test_old_snapshots_and_orphans_go(in_this_session, table_path, capsys):
    """First only said, then done: one snapshot is left, and a file of nobody is deleted."""
    table = small_files(table_path, 3)
    table.compact()
    orphan = table_path / "data" / f"{'0' * 32}.fermion"
    orphan.write_bytes(b"x" * 10)
    os.utime(orphan, (0, 0))  # a file of this very millisecond is not older than 0 s

    def summary(job, *arguments):
        assert job.main([str(table_path), "--older-than", "0s", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    said = summary(remove_orphans, "--dry-run")
    assert (said["dry_run"], said["paths"]) == (True, [f"data/{'0' * 32}.fermion"])
    assert orphan.exists()
    assert summary(remove_orphans)["bytes"] == 10
    assert not orphan.exists()
    planned = summary(expire, "--retain-last", "1", "--dry-run")
    gone = summary(expire, "--retain-last", "1")
    assert (gone["snapshots"], gone["files"]) == (planned["snapshots"], 3)
    assert len(table.snapshots()) == 1
    assert len(list((table_path / "data").iterdir())) == 1
    assert table.scan().count() == 3
    assert expire.main([str(table_path), "--older-than", "soon"]) == 2
    assert "an age such as 7d" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing-here"], 1, "no table here"),
        (["{table}", "--target-size", "huge"], 2, "'huge' is not a size"),
        (["{table}", "--max-groups-per-commit", "0"], 2, "=0: expected at least 1"),
        (["{table}", "--filter", "nam = 'x'"], 1, "no column 'nam'"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    in_this_session, table_path, capsys, arguments, status, said
):
    small_files(table_path, 2)
    given = [argument.replace("{table}", str(table_path)) for argument in arguments]
    assert compact.main(given) == status
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


class DyingRewrite(compaction._Rewrite):
    """Ends its process, as a machine without memory would."""

    def __call__(self, number):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.spark
def test_a_job_whose_workers_die_fails_in_one_line(
    in_this_session, table_path, capsys, monkeypatch
):
    """Spark has no Python error for this."""
    table = small_files(table_path, 2)
    monkeypatch.setattr(compaction, "_Rewrite", DyingRewrite)
    assert compact.main([str(table_path)]) == program.FAILED
    message = capsys.readouterr().err
    assert "Python worker exited unexpectedly" in message
    assert message.count("\n") == 1
    assert table.refresh().id == 2


@pytest.mark.parametrize("job", [append, compact, expire, from_parquet, remove_orphans, to_parquet])
def test_help_needs_no_spark(job, capsys, monkeypatch):
    """The module is run as a program: its usage line says how to start it."""
    monkeypatch.setattr(program, "_start", lambda *_: pytest.fail("a session was started"))
    monkeypatch.setattr(sys, "argv", [job.__file__, "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(job.__file__, run_name="__main__")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: python -m {job.__name__} " in said
    for option in ("--dry-run", "--json", "--master", "--conf", "--storage-option"):
        assert option in said


def test_wrong_usage_has_a_status_of_its_own(capsys):
    with pytest.raises(SystemExit) as caught:
        compact.main([])
    assert caught.value.code == program.WRONG_USAGE
    assert "path" in capsys.readouterr().err


def test_a_missing_java_is_a_failure_in_one_line(monkeypatch, capsys, tmp_path):
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compact.main(["table"]) == program.FAILED
    assert capsys.readouterr().err.count("\n") == 1

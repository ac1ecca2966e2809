"""`fermion inspect --html`: a whole page or none, and clear refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

import fermion
from fermion.cli import main


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.fermion"
    fermion.write_table(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}), path)
    return path


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_the_page_is_written_and_replaces_an_older_one(capsys, sample):
    """As `convert` does; nothing else is left in the directory."""
    target = sample.with_name("out.html")
    target.write_text("old")
    assert main(["inspect", str(sample), "--html", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: ")
    page = target.read_text(encoding="utf-8")
    with fermion.open(sample) as file:
        assert page == file.layout_html()
    assert data_of(page)["names"] == ["id", "name"]
    assert sorted(each.name for each in sample.parent.iterdir()) == ["out.html", "sample.fermion"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "other.fermion"], "--html: expected a name that ends in .html or .htm"),
        (["--html", "-"], "--html: expected a name that ends in .html or .htm, found '-'"),
        (["--html", "a.html", "--json"], "--html and --json exclude each other"),
        (["--html", "a.html", "--column", "id"], "--html and --column exclude each other"),
        (["--html", "a.html", "--top", "0"], "--html and --top exclude each other"),
    ],
)
def test_options_that_do_not_go_together_are_refused(capsys, sample, arguments, said, monkeypatch):
    """And nothing is written."""
    monkeypatch.chdir(sample.parent)
    sample.with_name("other.fermion").write_bytes(b"data")
    assert main(["inspect", str(sample), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert sample.with_name("other.fermion").read_bytes() == b"data"
    assert not list(sample.parent.glob("*.html"))


def test_a_failure_leaves_the_old_page_and_no_other_file(capsys, sample, monkeypatch):
    """No such file, no such directory, a damaged file, and a full disk."""
    target = sample.with_name("out.html")
    target.write_text("old")
    damaged = sample.with_name("damaged.fermion")
    damaged.write_bytes(b"FERMION1" + bytes(100))
    missing = sample.with_name("missing")
    for source, page in (
        (missing / "x.fermion", target),
        (sample, missing / "out.html"),
        (damaged, target),
    ):
        assert main(["inspect", str(source), "--html", str(page)]) == 1
        assert "fermion: " in capsys.readouterr().err

    def full(self: object, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fermion.io.sink.LocalSink.write", full)
    assert main(["inspect", str(sample), "--html", str(target)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert target.read_text() == "old"
    names = sorted(each.name for each in sample.parent.iterdir())
    assert names == ["damaged.fermion", "out.html", "sample.fermion"]


def test_storage_options_are_for_the_file_and_for_the_page(capsys, sample):
    """A storage in memory takes and gives both; credentials of a URL are not printed."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/inspect/a.fermion", sample.read_bytes())
    given = ["--storage-option", "skip_instance_cache:=false"]
    url = "memory://inspect/a.fermion"
    assert main(["inspect", url, "--html", "memory://inspect/out.html", *given]) == 0
    page = memory.cat("/inspect/out.html").decode()
    assert data_of(page)["file"]["columns"] == 2
    assert [each["name"] for each in memory.ls("/inspect", detail=True)] == [
        "/inspect/a.fermion",
        "/inspect/out.html",
    ]
    memory.rm("/inspect", recursive=True)
    capsys.readouterr()
    memory.pipe("/inspect/a.fermion?sig=secret", sample.read_bytes())
    file, folder = "memory://inspect/a.fermion?sig=secret", "memory://user:secret@inspect"
    assert main(["inspect", file, "--html", "memory://inspect/out.html"]) == 0
    assert main(["inspect", file, "--html", f"{folder}/out.html"]) == 2
    assert main(["inspect", f"{folder}/a.fermion", "--html", "memory://inspect/out.html"]) == 2
    said = capsys.readouterr()
    assert "secret" not in said.out + said.err
    memory.rm("/inspect", recursive=True)

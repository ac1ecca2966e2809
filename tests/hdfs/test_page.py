"""The code of the page about HDFS runs, with a cluster of this machine in place of its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.documents import DOCS
from tests.kit.page_runner import run_page

pytestmark = pytest.mark.services


def test_the_code_of_the_page_about_hdfs_runs(
    hdfs_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    replaced = {"hdfs://namenode:8020": hdfs_folder}
    run_page(DOCS / "guide/hdfs.md", tmp_path, monkeypatch, replaced=replaced)

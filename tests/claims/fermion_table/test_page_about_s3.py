"""The code of the page about S3 runs, with moto's server in place of its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.documents import DOCS
from tests.kit.page_runner import run_page


@pytest.mark.usefixtures("short_probe")
def test_the_code_of_the_page_about_s3_runs(
    s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    address = s3_options["client_kwargs"]["endpoint_url"]
    replaced = {
        "https://storage.example.com": address,
        '"..."': '"k"',
        "s3://bucket/": "s3://bucket/page/",
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_options["secret"])
    run_page(DOCS / "guide/s3.md", tmp_path, monkeypatch, replaced=replaced)

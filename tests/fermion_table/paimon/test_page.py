"""The code of the page about Paimon runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.documents import DOCS
from tests.kit.page_runner import run_page

pytest.importorskip("pypaimon", reason="pypaimon needs an older pyarrow: make test-pypaimon")


def test_the_code_of_the_page_about_paimon_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page(DOCS / "guide/paimon.md", tmp_path, monkeypatch)

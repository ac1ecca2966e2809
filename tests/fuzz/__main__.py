"""Feeds a target with bytes that reach new code: python -m tests.fuzz TARGET SECONDS [FOLDER].

Needs atheris (the dependency group ``fuzz``). New inputs go to the folder; the seeds are those of
``tests/fuzz/corpus`` and, for files, the golden ones and columns of every tree of encodings. Stops
at the first error that is not ours.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fermion", "fermion_table"]):
    from tests.fuzz.targets import DEEP, TARGETS
    from tests.kit.files.encoded_columns import ENCODED

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
SEED_BYTES_MAX = 8_192


def main() -> None:
    """Run a target until the time is over."""
    name, seconds = sys.argv[1], sys.argv[2]
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else f"build/fuzz/{name}")
    folder.mkdir(parents=True, exist_ok=True)
    seeds = HERE / "corpus" / name
    if name == "file":
        for golden in sorted(GOLDEN.glob("v1*/*.fermion")):
            if golden.stat().st_size <= SEED_BYTES_MAX:
                (folder / f"{golden.parent.name}_{golden.stem}").write_bytes(
                    golden.read_bytes() + DEEP
                )
        for column, encoded in ENCODED.items():
            (folder / f"column_{column}").write_bytes(encoded.stored() + DEEP)
    arguments = [
        sys.argv[0],
        str(folder),
        *([str(seeds)] if seeds.is_dir() else []),
        f"-max_total_time={seconds}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        f"-max_len={2 * SEED_BYTES_MAX}",
        f"-artifact_prefix={folder}/",
    ]
    atheris.Setup(arguments, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()

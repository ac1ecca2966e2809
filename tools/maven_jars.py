"""Loads jars from Maven Central: ``python -m tools.maven_jars FOLDER GROUP/ARTIFACT/VERSION ...``.

The folder holds these jars afterwards, and no others. A jar that can't be had is named on standard
error, with exit status 1.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

MAVEN = "https://repo1.maven.org/maven2"


def load(folder: Path, jars: list[str]) -> None:
    """Load the jars that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / "-".join((*jar.rsplit("/", 2)[1:],)): jar for jar in jars}
    wanted = {file.with_name(f"{file.name}.jar"): jar for file, jar in wanted.items()}
    for file in set(folder.glob("*.jar")) - wanted.keys():
        file.unlink()
    for file, jar in wanted.items():
        if not file.exists():
            draft = file.with_suffix(".part")
            try:
                urllib.request.urlretrieve(f"{MAVEN}/{jar}/{file.name}", draft)
            except (urllib.error.URLError, TimeoutError) as error:
                sys.exit(f"{file.name}: {error}")
            draft.replace(file)


if __name__ == "__main__":
    load(Path(sys.argv[1]), sys.argv[2:])

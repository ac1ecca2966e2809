"""Where the jar of the connector is: `python -m flink_ext.jar` prints its path."""

from __future__ import annotations

import sys
from pathlib import Path

from flink_ext.errors import JarNotFound

_PACKAGE = Path(__file__).resolve().parent
NAME = "flink-fermion.jar"


def jar_path() -> Path:
    """The path of the jar for Flink's ``lib`` folder, or its setting ``pipeline.jars``.

    Raises
    ------
    JarNotFound
        This is a checkout in which the jar was not built.
    """
    places = [_PACKAGE / NAME, _PACKAGE / "java" / "flink" / "target" / NAME]
    for place in places:
        if place.is_file():
            return place
    raise JarNotFound(
        f"{NAME} is neither in {places[0].parent} nor in {places[1].parent}; in a checkout, "
        "'make flink' builds it (Java 17 and Maven)"
    )


if __name__ == "__main__":
    try:
        print(jar_path())
    except JarNotFound as error:
        sys.exit(str(error))

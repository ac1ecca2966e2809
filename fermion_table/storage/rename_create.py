"""Create-if-absent on HDFS: write a temporary file, then rename it onto a name that is free.

HDFS renames atomically and never onto a file that is there: it answers false. fsspec's `mv` for
WebHDFS drops that answer, so RENAME is called here, and its boolean looked at. pyarrow's own HDFS
file system deletes what stands in the way and renames again: it is never used for a slot.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fermion.redaction import logger
from fermion_table.storage.paths import temporary_name, unique_name
from fermion_table.storage.store import CreateResult

_log = logger(__name__)

WEBHDFS = "webhdfs"


def create_by_rename(filesystem: Any, full: str, data: bytes) -> CreateResult:
    """Store a file whole if nothing has its name.

    Parameters
    ----------
    filesystem
        fsspec's ``WebHDFS``.
    full
        The path within it.

    Raises
    ------
    OSError
        The rename was refused although nothing is in the way: nothing was created.
    """
    folder, _, name = full.rpartition("/")
    temporary = f"{folder}/{temporary_name(name, unique_name())}"
    filesystem.makedirs(folder, exist_ok=True)
    filesystem.pipe_file(temporary, data)
    try:
        reply = filesystem._call("RENAME", method="put", path=temporary, destination=full)
        renamed = reply.json()["boolean"]
    except Exception as error:  # noqa: BLE001 - the reply may be lost, and the file renamed
        _log.warning("%s: rename failed (%r), the outcome is unknown", full, error)
        return CreateResult.UNKNOWN
    finally:
        with contextlib.suppress(Exception):  # renamed, or left over as an orphan
            filesystem.rm_file(temporary)
    if renamed is True:
        return CreateResult.CREATED
    with contextlib.suppress(FileNotFoundError):
        if filesystem.info(full)["type"] == "file":
            return CreateResult.EXISTS
    raise OSError(f"{full}: HDFS refused to rename {temporary} to it")

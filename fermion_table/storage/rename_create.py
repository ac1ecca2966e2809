"""Create-if-absent on HDFS: write a temporary file, then rename it onto a name that is free.

HDFS renames atomically and never onto a file that is there. Over `fermion.io.hdfs` it answers with
an error then; over WebHDFS with false, which fsspec's `mv` drops, so RENAME is called here, and its
boolean looked at. pyarrow's own HDFS file system deletes what stands in the way and renames again:
it is never used for a slot.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fermion.engine import protocols, renames_in_one_step
from fermion.redaction import logger
from fermion_table.storage.paths import temporary_name, unique_name
from fermion_table.storage.store import CreateResult

_log = logger(__name__)

HDFS = "hdfs"
WEBHDFS = "webhdfs"


def creates_by_rename(filesystem: Any) -> bool:
    """Whether a file system can be used with `create_by_rename`."""
    return WEBHDFS in protocols(filesystem) or renames_in_one_step(filesystem)


def create_by_rename(filesystem: Any, full: str, data: bytes) -> CreateResult:
    """Store a file whole if nothing has its name.

    filesystem: fsspec's ``WebHDFS``, or that of `fermion.io.hdfs`.
    Raises OSError: The file could not be written, or the rename was refused although nothing is in
        the way: nothing was created.
    """
    folder, _, name = full.rpartition("/")
    temporary = f"{folder}/{temporary_name(name, unique_name())}"
    if renames_in_one_step(filesystem):
        return _by_rename2(filesystem, temporary, full, data)
    return _by_webhdfs(filesystem, temporary, full, data)


def _by_rename2(filesystem: Any, temporary: str, full: str, data: bytes) -> CreateResult:
    filesystem.write_new(temporary, data)
    try:
        filesystem.mv(temporary, full)
    except Exception as error:
        with contextlib.suppress(Exception):  # left over as an orphan
            filesystem.rm_file(temporary)
        if isinstance(error, FileExistsError):
            return CreateResult.EXISTS
        if filesystem.is_refusal(error):
            raise
        # Also where the temporary file is missing: the client may have sent the call twice.
        _log.warning("%s: rename failed (%r), the outcome is unknown", full, error)
        return CreateResult.UNKNOWN
    return CreateResult.CREATED


def _by_webhdfs(filesystem: Any, temporary: str, full: str, data: bytes) -> CreateResult:
    filesystem.makedirs(full.rpartition("/")[0], exist_ok=True)
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

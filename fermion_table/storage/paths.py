"""Every file name of a table's directory.

Names are relative to the table, with ``/`` between segments::

    snapshot/00000000000000000007.json     commit slot of branch main
    snapshot/LATEST                        hint: an id that existed
    snapshot/EARLIEST                      hint: ids from 1 up to this one have expired
    expired/00000000000000000005           mark: the same, created if absent
    expired/00000000000000000005-<id>      mark: the same, but for changelogs from an id on
    branch/<name>/branch.json              where a branch leaves another one
    branch/<name>/snapshot/...             its slots and hints
    branch/<name>/expired/...              its marks
    tags/<name>.json                       a tag
    consumers/<name>/<id>-<time>.json      how far a program that follows the table has come
    pending/<unique>.json                  a tag or branch that is being made
    damaged/<unique>-<id>.json             a snapshot file that could not be read, set aside
    probe/verdict.json                     that the storage creates atomically
    probe/<unique>-<n>.tmp                 what writers raced for to find that out
    schema/<id>-<unique>.json[.zst]        one schema version
    manifest/<unique>.json[.zst]           a loose manifest, or a packed one's entry point
    manifest/<unique>.index.fermion        a packed manifest's columns
    deletion/<unique>.dv                   packed deletion vectors
    data/[k=v/...][bucket-n/]<unique>.fermion
    data/[k=v/...][bucket-n/]changelog-<unique>.fermion
    data/columns-<unique>.fermion          columns of the rows of another data file
    data/index-<unique>.fermion            where values of a column are in a data file

Slots, tags and hints are never compressed: a slot must have exactly one name.
All functions but `unique_name` are pure.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from urllib.parse import quote

from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_text
from fermion_table.errors import UnsafeStorage

MAIN = "main"
SNAPSHOT_ID_DIGITS = 20
SNAPSHOT_ID_MAX = 2**63 - 1
PATH_CHARACTERS_MAX = 4096
SEGMENT_CHARACTERS_MAX = 200
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
TEMPORARY_SUFFIX = ".tmp"
LATEST_HINT = "LATEST"

SCHEMA_DIRECTORY = "schema"
MANIFEST_DIRECTORY = "manifest"
DELETION_DIRECTORY = "deletion"
DATA_DIRECTORY = "data"
TAG_DIRECTORY = "tags"
CONSUMER_DIRECTORY = "consumers"
BRANCH_DIRECTORY = "branch"
PENDING_DIRECTORY = "pending"
EXPIRED_DIRECTORY = "expired"
PROBE_DIRECTORY = "probe"
DAMAGED_DIRECTORY = "damaged"
VERDICT_PATH = f"{PROBE_DIRECTORY}/verdict.json"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_SAFE_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[^/\\:\x00-\x1f]+"
_SAFE_PATH = re.compile(f"{_SAFE_SEGMENT}(?:/{_SAFE_SEGMENT})*")
_SNAPSHOT_FILE = re.compile(rf"(\d{{{SNAPSHOT_ID_DIGITS}}})\.json")
_EXPIRED_MARK = re.compile(rf"(\d{{{SNAPSHOT_ID_DIGITS}}})(?:-(\d{{{SNAPSHOT_ID_DIGITS}}}))?")
_UNIQUE = "[0-9a-f]{32}"
_PREFIX = "(?:changelog-|columns-|index-)?"
_ANY_TEMPORARY = rf"\.[^/]+\.{_UNIQUE}\.tmp"
_PARTITIONS = r"(?:(?:[A-Za-z0-9_.%-]*=[A-Za-z0-9_.%-]*|bucket-[0-9]+)/)*"
_WRITERS_OBJECT = (
    rf"data/{_PARTITIONS}(?:{_PREFIX}{_UNIQUE}\.fermion"
    rf"|\.{_PREFIX}{_UNIQUE}\.fermion\.{_UNIQUE}\.tmp)"
    rf"|data/(?:{_UNIQUE}\.blob|\.{_UNIQUE}\.blob\.{_UNIQUE}\.tmp)"
    rf"|deletion/{_UNIQUE}\.dv"
    rf"|manifest/{_UNIQUE}(?:\.json(?:\.zst)?|\.index\.fermion)"
    rf"|schema/[0-9]+-{_UNIQUE}\.json(?:\.zst)?"
    rf"|pending/{_UNIQUE}\.json"
    rf"|probe/{_UNIQUE}-[0-9]+\.tmp"
    rf"|(?:deletion|manifest|schema|pending|snapshot|tags|expired)/{_ANY_TEMPORARY}"
    rf"|branch/[^/]+/(?:(?:snapshot|expired)/)?{_ANY_TEMPORARY}"
    rf"|consumers/[^/]+/{_ANY_TEMPORARY}"
)
"""Every object under a unique name, and every temporary file, that this module's names allow; no
read asks for it, so that it is text, compiled at its first use, as the next two."""
_HISTORY = r"(?:branch/[^/]+/)?"
_REFERENCE_OBJECT = (
    rf"{_HISTORY}snapshot/(?:\d{{{SNAPSHOT_ID_DIGITS}}}\.json|LATEST|EARLIEST)"
    rf"|{_HISTORY}expired/{_EXPIRED_MARK.pattern}"
    rf"|branch/[^/]+/branch\.json"
    rf"|tags/[^/]+\.json"
    rf"|consumers/[^/]+/\d{{{SNAPSHOT_ID_DIGITS}}}-\d{{{SNAPSHOT_ID_DIGITS}}}\.json"
    rf"|probe-{_UNIQUE}/\d+\.tmp"
    rf"|{DAMAGED_DIRECTORY}/{_UNIQUE}-\d{{{SNAPSHOT_ID_DIGITS}}}\.json"
)
"""What refers to the others: slots (damaged ones too), hints, marks, branches, tags; and keys of a
storage's probe."""
_FOLDER = (
    rf"{_HISTORY}(?:snapshot|expired)/|branch/(?:[^/]+/)?|(?:tags|pending|schema|manifest|deletion)/"
    rf"|consumers/(?:[^/]+/)?|data/{_PARTITIONS}|{DAMAGED_DIRECTORY}/|probe-{_UNIQUE}/"
)
"""Every directory that tables make within theirs, with a slash behind it."""


def unique_name() -> str:
    """A name that no other writer uses: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def snapshot_directory(branch: str = MAIN) -> str:
    """The directory of a branch's commit slots."""
    if branch == MAIN:
        return "snapshot"
    return f"{BRANCH_DIRECTORY}/{check_name(branch, 'branch')}/snapshot"


def snapshot_path(snapshot_id: int, branch: str = MAIN) -> str:
    """The commit slot of a snapshot id."""
    if not 0 <= snapshot_id <= SNAPSHOT_ID_MAX:
        raise InvalidArgumentError(f"snapshot id {snapshot_id}: expected 0 to {SNAPSHOT_ID_MAX}")
    return f"{snapshot_directory(branch)}/{snapshot_id:0{SNAPSHOT_ID_DIGITS}d}.json"


def snapshot_id_of(file_name: str) -> int | None:
    """The id of a commit slot's file name (its last segment), None for any other file."""
    match = _SNAPSHOT_FILE.fullmatch(file_name)
    if match is None or int(match[1]) > SNAPSHOT_ID_MAX:
        return None
    return int(match[1])


def latest_hint_path(branch: str = MAIN) -> str:
    """The hint at the latest snapshot: may be stale or missing."""
    return f"{snapshot_directory(branch)}/{LATEST_HINT}"


def earliest_hint_path(branch: str = MAIN) -> str:
    """The hint at the earliest snapshot (but for the creation) whose data is still there."""
    return f"{snapshot_directory(branch)}/EARLIEST"


def expired_directory(branch: str = MAIN) -> str:
    """The directory of the marks that say which snapshots of a branch have expired."""
    if branch == MAIN:
        return EXPIRED_DIRECTORY
    return f"{BRANCH_DIRECTORY}/{check_name(branch, 'branch')}/{EXPIRED_DIRECTORY}"


def expired_mark_path(
    snapshot_id: int, branch: str = MAIN, *, changelog_id: int | None = None
) -> str:
    """The mark that ids from 1 up to this one, exclusive, have expired.

    changelog_id: Changelogs from this id on have not; None: they expire with their snapshots.
    """
    name = f"{snapshot_id:0{SNAPSHOT_ID_DIGITS}d}"
    if changelog_id is not None and changelog_id < snapshot_id:
        name += f"-{changelog_id:0{SNAPSHOT_ID_DIGITS}d}"
    return f"{expired_directory(branch)}/{name}"


def ids_of_expired_mark(file_name: str) -> tuple[int, int] | None:
    """The ids of a mark's file name (its last segment): the first kept, and that of changelogs."""
    match = _EXPIRED_MARK.fullmatch(file_name)
    return None if match is None else (int(match[1]), int(match[2] or match[1]))


def branch_path(name: str) -> str:
    """The file that makes a branch."""
    return f"{BRANCH_DIRECTORY}/{check_name(name, 'branch')}/branch.json"


def tag_path(name: str) -> str:
    """The file of a tag."""
    return f"{TAG_DIRECTORY}/{check_name(name, 'tag')}.json"


def consumer_directory(name: str) -> str:
    """The directory of a consumer's positions."""
    return f"{CONSUMER_DIRECTORY}/{check_name(name, 'consumer')}"


def consumer_path(name: str, snapshot_id: int, time_ms: int) -> str:
    """The file of a position: up to which snapshot, and since when, in ms since 1970 UTC."""
    numbers = (f"{each:0{SNAPSHOT_ID_DIGITS}d}" for each in (snapshot_id, time_ms))
    return f"{consumer_directory(name)}/{'-'.join(numbers)}.json"


def pending_path(unique: str) -> str:
    """The file that protects what a tag or branch will name while that is being made."""
    return f"{PENDING_DIRECTORY}/{unique}.json"


def damaged_path(unique: str, snapshot_id: int) -> str:
    """The file of a snapshot file's bytes that could not be read."""
    return f"{DAMAGED_DIRECTORY}/{unique}-{snapshot_id:0{SNAPSHOT_ID_DIGITS}d}.json"


def schema_path(schema_id: int, unique: str, *, compressed: bool = False) -> str:
    """The file of one schema version."""
    return f"{SCHEMA_DIRECTORY}/{schema_id}-{unique}.json{'.zst' if compressed else ''}"


def manifest_path(unique: str, *, compressed: bool = False) -> str:
    """The file of a manifest."""
    return f"{MANIFEST_DIRECTORY}/{unique}.json{'.zst' if compressed else ''}"


def manifest_index_path(unique: str) -> str:
    """The Fermion file that holds a packed manifest's columns."""
    return f"{MANIFEST_DIRECTORY}/{unique}.index.fermion"


def deletion_path(unique: str) -> str:
    """The file of packed deletion vectors."""
    return f"{DELETION_DIRECTORY}/{unique}.dv"


def data_path(
    unique: str,
    partition: Sequence[tuple[str, str | None]] = (),
    bucket: int | None = None,
    *,
    is_changelog: bool = False,
    is_columns: bool = False,
) -> str:
    """The file of rows.

    unique: A name from `unique_name`.
    partition: Names and values as text, None for null. They make the directory readable and are
        never parsed back: the values themselves are in the manifest entry.
    bucket: Bucket number, if the table has buckets.
    is_changelog, is_columns: Whether the rows are changes of a changelog, or columns of the rows of
        another file.
    """
    segments = [DATA_DIRECTORY]
    segments += [partition_segment(name, value) for name, value in partition]
    if bucket is not None:
        segments.append(f"bucket-{bucket}")
    prefix = "changelog-" if is_changelog else "columns-" if is_columns else ""
    segments.append(f"{prefix}{unique}.fermion")
    return check_path("/".join(segments))


def index_path(unique: str) -> str:
    """The file that tells where values of a column are in a data file."""
    return f"{DATA_DIRECTORY}/index-{unique}.fermion"


def blob_path(unique: str) -> str:
    """The file of large values, to which data files have references."""
    return f"{DATA_DIRECTORY}/{unique}.blob"


def is_index(path: str) -> bool:
    """Whether a file is an index: tables can be read without it."""
    return path.startswith(f"{DATA_DIRECTORY}/index-")


def partition_segment(name: str, value: str | None) -> str:
    """``name=value`` with everything escaped that a file system or URL could misread."""
    text = NULL_PARTITION if value is None else value
    return f"{_escaped(name)}={_escaped(text)}"


def check_name(name: str, what: str) -> str:
    """The name of a tag, a branch or a consumer, checked.

    Raises InvalidArgumentError: Not 1 to 128 letters, digits and ``_ . -``, or digits only (that is
        a snapshot id), or ending in ``.tmp``.
    Raises TypeError: No text.
    """
    name = check_text(name, f"{what} name")
    if _NAME.fullmatch(name) is None or name.isdigit() or name.endswith(TEMPORARY_SUFFIX):
        raise InvalidArgumentError(
            f"{what} name {name!r}: expected 1 to 128 letters, digits, '_', '.' or '-', "
            f"the first a letter, digit or '_', and not digits only"
        )
    return name


def check_path(path: str) -> str:
    """A path relative to the table, checked not to leave it.

    Raises UnsafeStorage: Empty, absolute, too long, with a drive, a backslash, a control character,
        or a segment that is empty, ``.`` or ``..``.
    """
    if not path or len(path) > PATH_CHARACTERS_MAX:
        raise UnsafeStorage(f"path of {len(path)} characters: expected 1 to {PATH_CHARACTERS_MAX}")
    if _SAFE_PATH.fullmatch(path) is None:
        raise UnsafeStorage(f"path {path[:200]!r}: expected a name within the table's directory")
    return path


def probe_path(unique: str, number: int) -> str:
    """An object of a probe: see `probe`."""
    return f"{PROBE_DIRECTORY}/{unique}-{number}{TEMPORARY_SUFFIX}"


def is_temporary(path: str) -> bool:
    """Whether a path is a writer's temporary file, never part of a table."""
    return path.endswith(TEMPORARY_SUFFIX)


def final_path(path: str) -> str:
    """The object that a temporary file is to become; any other path as it is."""
    if not is_temporary(path):
        return path
    folder, _, name = path.removesuffix(TEMPORARY_SUFFIX).rpartition("/")
    return f"{folder}/{name.rpartition('.')[0].removeprefix('.')}"


def is_made_by_writers(path: str) -> bool:
    """Whether a writer of tables could have made this object, by its folder and unique name.

    Only such objects can be orphans. Anything else in a table's directory is its owner's: a
    ``data/notes.csv``, or a directory that is no partition.
    """
    return re.fullmatch(_WRITERS_OBJECT, path) is not None


def is_own_file(path: str) -> bool:
    """Whether a path has the form of a file that tables make; any other file is somebody else's."""
    return is_made_by_writers(path) or re.fullmatch(_REFERENCE_OBJECT, path) is not None


def is_own_folder(path: str) -> bool:
    """Whether a path has the form of a directory that tables make within theirs."""
    return re.fullmatch(_FOLDER, f"{path}/") is not None


def temporary_name(file_name: str, unique: str) -> str:
    """The temporary file, in the same directory, from which `file_name` is made."""
    return f".{file_name[:SEGMENT_CHARACTERS_MAX]}.{unique}{TEMPORARY_SUFFIX}"


def _escaped(text: str) -> str:
    escaped = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    if escaped in (".", ".."):
        escaped = escaped.replace(".", "%2E")
    if len(escaped) <= SEGMENT_CHARACTERS_MAX // 2:
        return escaped
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{escaped[: SEGMENT_CHARACTERS_MAX // 2 - 20]}...{digest}"

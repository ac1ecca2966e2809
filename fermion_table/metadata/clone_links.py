"""What links clones and their sources: tags in the source, each with the location of its clone.

A tag may outlive its clone, and a clone may be moved or copied with all of its files. So a clone
counts while its location holds a table that names the tag, and a tag is deleted with the table
whose location it names.
"""

from __future__ import annotations

import contextlib

from fermion.errors import FermionError
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import Tag, delete_tag, load_tag, snapshot_of, tag_names
from fermion_table.metadata.shared_files import (
    CLONE_OF,
    CLONE_TAG,
    creation_properties,
    is_outside,
    options_for,
    place_of,
)
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import tag_path
from fermion_table.storage.store import AtomicStore

CLONE_TAG_PREFIX = "clone-"
_KEEPS = "keeps the files of "


def message_of_clone_tag(location: str) -> str:
    """The message of the tags that keep the files of a clone: the only record of its location."""
    return _KEEPS + location


def clones_of(store: AtomicStore) -> list[str]:
    """The locations of the clones that need files of a table's own directory, ascending.

    A clone that can't be looked at counts, and so does one whose tag is damaged: the tag's path
    stands for its location.

    Raises OSError: The tags can't be listed.
    """
    found = set()
    for name in tag_names(store):
        if not name.startswith(CLONE_TAG_PREFIX):
            continue
        try:
            tag = load_tag(store, name)
            location = None if tag is None else _clone_of_tag(tag)
            if tag is None or location is None:
                continue
            if _shares_own_files(store, tag) and _is_clone(store, location, name):
                found.add(location)
        except (FermionError, OSError):
            found.add(tag_path(name))
    return sorted(found)


def delete_clone_tags(store: AtomicStore, properties: dict[str, str]) -> None:
    """Delete the tags that kept the files of a clone, which has been dropped.

    Of its source, and of that one's own source, and so on. A tag stays where it can't be deleted,
    and where it names another location: that of a table that was copied or moved.

    store, properties: Of the clone; those of its snapshot 0, as they were.
    """
    name, seen = properties.get(CLONE_TAG), {store.location}
    location = properties.get(CLONE_OF)
    with contextlib.suppress(FermionError, OSError):
        while name is not None and location is not None and location not in seen:
            if place_of(location) != place_of(store.location):
                return
            seen.add(location)
            source = open_store(location, storage_options=store.storage_options)
            tag = load_tag(source, name)
            if tag is not None and _clone_of_tag(tag) == store.location:
                delete_tag(source, name)
            location = creation_properties(source).get(CLONE_OF)


def _clone_of_tag(tag: Tag) -> str | None:
    """The location of the clone that a tag was made for, None if it was made for none."""
    message = tag.message or ""
    return message.removeprefix(_KEEPS) if message.startswith(_KEEPS) else None


def _shares_own_files(store: AtomicStore, tag: Tag) -> bool:
    """Whether what a clone began with has files of this table, not only of its own source."""
    snapshot = snapshot_of(tag, tag_path(tag.name))
    return any(_is_own(entry) for entry in live_entries(store, snapshot))


def _is_own(entry: Entry) -> bool:
    vector = entry.deletion_vector
    if vector is not None and not is_outside(vector.path):
        return True
    beside = [each.external_path for each in entry.column_files]
    beside += [each.external_path for each in entry.blob_files]
    return None in (entry.external_path, *beside)


def _is_clone(store: AtomicStore, location: str, tag: str) -> bool:
    """Whether the table at a location says that a tag keeps its files; so if it can't be read."""
    try:
        clone = open_store(location, storage_options=options_for(store, location))
        return creation_properties(clone).get(CLONE_TAG) == tag
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (FermionError, OSError):
        return True

"""The client of HDFS without a cluster: its addresses, its errors, and how it is missed."""

from __future__ import annotations

import errno

import fsspec
import pytest

import fermion
from fermion.errors import StorageError
from fermion.io import remote


def test_without_its_client_a_url_says_what_to_install(monkeypatch):
    def no_java(*_: object, **__: object) -> None:
        raise OSError("Unable to load libjvm\nand more")

    monkeypatch.setattr(remote, "_native_hdfs", lambda: None)
    monkeypatch.setattr(fsspec.core, "url_to_fs", no_java)
    with pytest.raises(StorageError, match=r"libjvm.*pip install hdfs-native ") as caught:
        fermion.open("hdfs://namenode:8020/a.fermion")
    assert "and more" not in str(caught.value)
    with pytest.raises(OSError, match="and more"):
        remote.connect("other://namenode:8020/a.fermion")


@pytest.mark.parametrize(
    ("url", "place", "path"),
    [
        ("hdfs://Cluster/a/b", {"host": "Cluster"}, "/a/b"),
        ("hdfs://h:8020/a#b?c%41/", {"host": "h", "port": 8020}, "/a#b?c%41"),
        ("hdfs://h:8020", {"host": "h", "port": 8020}, "/"),
        ("hdfs:///a", {"host": None}, "/a"),
    ],
)
def test_addresses_keep_every_character(url, place, path):
    """hdfs-native's own take parts of a name for a query, and make hosts lower-case."""
    hdfs = pytest.importorskip("fermion.io.hdfs", reason="the extra hdfs brings hdfs-native")
    assert hdfs.Hdfs._get_kwargs_from_urls(url) == place
    assert hdfs.Hdfs._strip_protocol(url) == path


@pytest.mark.parametrize(
    ("said", "kind", "code", "text"),
    [
        ("ipc.StandbyException", ConnectionError, errno.ECONNREFUSED, "StandbyException: no"),
        ("security.AccessControlException", PermissionError, errno.EACCES, "AccessControl"),
        ("namenode.SafeModeException", OSError, errno.EROFS, "SafeModeException: no"),
        ("protocol.DSQuotaExceededException", OSError, errno.EDQUOT, "DSQuotaExceeded"),
        ("a.B$NewOne", OSError, errno.EIO, "NewOne: no"),
    ],
)
def test_answers_of_the_namenode_become_errors(said, kind, code, text):
    hdfs = pytest.importorskip("fermion.io.hdfs", reason="the extra hdfs brings hdfs-native")

    def call() -> None:
        raise RuntimeError(f'RPCError("org.apache.{said}", "no\\n\\tat java.lang.Thread")')

    with pytest.raises(kind, match=text) as caught:
        hdfs._call("write", "/a", call)
    assert caught.value.errno == code
    assert "java.lang.Thread" not in str(caught.value)
    assert hdfs.Hdfs.is_refusal(caught.value)


def test_a_panic_and_a_lost_connection_are_no_refusals():
    hdfs = pytest.importorskip("fermion.io.hdfs", reason="the extra hdfs brings hdfs-native")

    class PanicException(BaseException):
        """As pyo3 has one."""

    for error in (PanicException("called unwrap"), RuntimeError("RPC listener disconnected")):
        with pytest.raises(OSError, match=r"unwrap|disconnected") as caught:
            hdfs._call("rename", "/a", lambda error=error: _raise(error))
        assert not hdfs.Hdfs.is_refusal(caught.value)


def _raise(error: BaseException) -> None:
    raise error

"""What goes wrong before or beside Spark is said in our words, without a session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

import spark_ext
from fermion.errors import InvalidArgumentError
from spark_ext.catalog.callbacks import Callback, JavaAnswer
from spark_ext.options import absolute
from spark_ext.session import classic

OLD = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: spark_ext.read_table("t", "t"), "read_table: spark: expected a SparkSession"),
        (lambda: spark_ext.compact(None, "t"), "compact: spark: expected a SparkSession"),
        (lambda: spark_ext.append({"id": [1]}, "t"), "append: df: expected a Spark DataFrame"),
        (lambda: spark_ext.overwrite(None, "t"), "overwrite: df: expected a Spark DataFrame"),
        (lambda: spark_ext.write([1], "t"), r"write: df: .* found builtins\.list"),
        (lambda: classic(OLD, "expire"), "expire: spark: the session was stopped"),
        (lambda: absolute(7), "path: expected a path or a URL, found 7"),
        (lambda: absolute(""), "path: expected a path"),
    ],
)
def test_arguments_that_are_none_of_sparks_are_refused_by_name(call, said):
    with pytest.raises(InvalidArgumentError, match=said):
        call()


def test_every_error_behind_a_java_interface_goes_back_with_its_words():
    """Of Python, of a call to Spark, and ours; what is a Java exception already stays as it is."""

    class Refusing:
        def refusal(self, message: str) -> JavaAnswer:
            return JavaAnswer(message, SimpleNamespace(_target_id="o1"))

    class Failing(Callback):
        def answer(self, error: Exception) -> None:
            raise error

    from_spark = SimpleNamespace(_target_id="o2", toString=lambda: "SparkException: worker is gone")
    made = JavaAnswer("no such table", from_spark)
    for error, said in (
        (KeyError("place"), "KeyError: 'place'"),
        (OSError("disk is full"), "OSError: disk is full"),
        (InvalidArgumentError("no"), "InvalidArgumentError: no"),
        (Py4JJavaError("An error occurred", from_spark), "Spark: SparkException: worker is gone"),
        (made, "no such table"),
    ):
        with pytest.raises(JavaAnswer) as caught:
            Failing(Refusing()).answer(error)
        assert caught.value.errmsg == said
    assert caught.value is made

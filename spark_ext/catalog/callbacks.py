"""Python objects that the JVM calls, and what they need of the JVM.

Spark asks a catalog through Java interfaces. Py4J lets Python objects answer: it calls the method
of the same name, default methods of the interface included, so that a class here has to answer
everything that Spark may ask. Errors of any kind go back as Java exceptions with type and words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_ext.errors import UnsupportedBySpark

_SQL = "org.apache.spark.sql."


class Jvm:
    """The JVM of a session: its classes by name, and what has to be made of them.

    Parameters
    ----------
    spark
        A classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.context = spark.sparkContext
        gateway = self.context._gateway
        assert gateway is not None
        self._gateway: Any = gateway

    @functools.cache  # noqa: B019 - lives as long as the session
    def type(self, name: str) -> Any:
        """A class of ``org.apache.spark.sql``, or any class by its whole name."""
        whole = name if name.startswith(("java.", "scala.", "org.")) else _SQL + name
        found = getattr(self._gateway.jvm, whole)
        if not isinstance(found, JavaClass):
            raise UnsupportedBySpark(f"this Spark has no class {whole}")
        return found

    def array(self, name: str, items: Iterable[Any] = ()) -> Any:
        """A Java array of a class."""
        listed = list(items)
        made = self._gateway.new_array(self.type(name), len(listed))
        put = self.type("java.lang.reflect.Array").set  # takes Python objects too
        for place, item in enumerate(listed):
            put(made, place, item)
        return made

    def matrix(self, name: str, rows: int) -> Any:
        """A Java array of arrays of a class, to be put in one by one."""
        return self._gateway.new_array(self.type(name), rows, 0)

    def enum_set(self, name: str, values: Iterable[str]) -> Any:
        """A Java set of constants."""
        made = self.type("java.util.HashSet")()
        for value in values:
            made.add(getattr(self.type(name), value))
        return made

    def schema(self, json: str) -> Any:
        """A ``StructType`` from its JSON: one call, however many columns there are."""
        return self.type("types.DataType").fromJson(json)

    def text_map(self, values: dict[str, str]) -> Any:
        """Options, as Spark hands them over."""
        return self.type("util.CaseInsensitiveStringMap")(values)

    def error(self, name: str, *arguments: Any) -> JavaAnswer:
        """A Java exception to be raised."""
        return JavaAnswer(name, self.type(name)(*arguments))

    def refusal(self, message: str) -> JavaAnswer:
        """What Spark shows as `pyspark.errors.IllegalArgumentException`."""
        return self.error("java.lang.IllegalArgumentException", message)


class JavaAnswer(Py4JJavaError):
    """A Java exception that we have made: Spark gets it as it is."""


def interfaces(*names: str) -> type:
    """What Py4J asks a class for, as its ``Java``: the interfaces of ``org.apache.spark.sql``."""
    return type("Java", (), {"implements": [_SQL + name for name in names]})


class Callback:
    """A Python object behind Java interfaces; subclasses name them as ``Java``.

    Parameters
    ----------
    jvm
        The JVM that calls.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if callable(member) and not name.startswith("_") and not isinstance(member, type):
                setattr(cls, name, _answering(member))

    def equals(self, other: Any) -> bool:
        """Whether it is the same object."""
        return other is self

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        """Of the object, 31 bits."""
        return hash(id(self)) & 0x7FFFFFFF

    def toString(self) -> str:  # noqa: N802 - Java's name
        """For plans and logs."""
        return type(self).__name__


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def answer(self: Callback, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except JavaAnswer:
            raise
        except Py4JJavaError as error:  # of a call to Spark: passed on, it would lose its words
            raise self._jvm.refusal(f"Spark: {error.java_exception.toString()}") from error
        except Exception as error:
            raise self._jvm.refusal(f"{type(error).__name__}: {error}") from error

    return answer

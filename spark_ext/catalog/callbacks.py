"""Python objects that the JVM calls, and what they need of the JVM.

Spark calls a catalog through Java interfaces. Py4J lets Python objects implement them: it calls the
method of the same name, also for default methods of the interface, so a class must have every
method that Spark may call. Every error is sent back as a Java exception with its type and message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from py4j.java_gateway import JavaClass, is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_ext.errors import UnsupportedBySpark

_SQL = "org.apache.spark.sql."
_ARRAYS = "java.lang.reflect.Array"
_CLASS_NAMES = "org.apache.commons.lang3.ClassUtils"  # Spark itself depends on it
_UNCHECKED = ("RuntimeException", "Error")


class Jvm:
    """The JVM of a classic session: makes objects of its classes."""

    def __init__(self, spark: SparkSession) -> None:
        self._installed = spark
        self.context = spark.sparkContext
        gateway = self.context._gateway
        assert gateway is not None
        self._gateway: Any = gateway
        self.row_level_refusal: str | None = None
        """Why statements that change rows do not work with this Spark; None: they do."""

    @property
    def spark(self) -> SparkSession:
        """The session that calls: the one given, or one that has its catalogs from it.

        None of the others is kept, as Spark makes one each time that a stream begins.
        """
        active: Any = self.static("classic.SparkSession", "active")()
        installed = self._installed
        if active.equals(installed._jsparkSession):
            return installed
        return SparkSession(self.context, active)

    @functools.cache  # noqa: B019 - lives as long as the session
    def type(self, name: str) -> Any:
        """A class of ``org.apache.spark.sql``, or any class by its whole name."""
        whole = name if name.startswith(("java.", "scala.", "org.")) else _SQL + name
        java_class = getattr(self._gateway.jvm, whole)
        if not isinstance(java_class, JavaClass):
            raise UnsupportedBySpark(f"this Spark has no class {whole}")
        return java_class

    @functools.cache  # noqa: B019 - lives as long as the session
    def static(self, name: str, method: str) -> Any:
        """A static method of a class: to look one up is a call."""
        return getattr(self.type(name), method)

    @functools.cache  # noqa: B019 - lives as long as the session
    def constant(self, name: str, value: str) -> Any:
        """A constant of a class."""
        return getattr(self.type(name), value)

    @functools.cache  # noqa: B019 - lives as long as the session
    def nothing(self, name: str) -> Any:
        """A Java array of a class, without items."""
        return self._gateway.new_array(self.type(name), 0)

    def array(self, name: str, items: Iterable[Any] = ()) -> Any:
        """A Java array of a class."""
        given = list(items)
        if not given:
            return self.nothing(name)
        made = self._gateway.new_array(self.type(name), len(given))
        put = self.static(_ARRAYS, "set")  # takes Python objects too
        for place, item in enumerate(given):
            put(made, place, item)
        return made

    def matrix(self, name: str, rows: int) -> Any:
        """A Java array for arrays of a class, which the caller fills."""
        return self._gateway.new_array(self.type(name), rows, 0)

    def flags(self, size: int) -> Any:
        """A Java array of booleans, all false."""
        return self._gateway.new_array(self._gateway.jvm.boolean, size)

    @functools.cache  # noqa: B019 - lives as long as the session
    def enum_set(self, name: str, values: tuple[str, ...]) -> Any:
        """A Java set of constants, made once: nobody may change it."""
        made = self.type("java.util.HashSet")()
        for value in values:
            made.add(self.constant(name, value))
        return made

    @functools.cache  # noqa: B019 - lives as long as the session
    def text_set(self, values: tuple[str, ...]) -> Any:
        """A Java set of texts, made once: nobody may change it."""
        made = self.type("java.util.HashSet")()
        for value in values:
            made.add(value)
        return made

    def schema(self, json: str) -> Any:
        """A ``StructType`` from its JSON: one call, however many columns there are."""
        return self.static("types.DataType", "fromJson")(json)

    @functools.cache  # noqa: B019 - lives as long as the session
    def kept_type(self, json: str) -> Any:
        """A type that is asked for again and again, from its JSON."""
        return self.schema(json)

    def hash_map(self, values: Mapping[str, str]) -> Any:
        """A Java map of texts."""
        made = self.type("java.util.HashMap")()
        for key, value in values.items():
            made.put(key, value)
        return made

    def text_map(self, values: dict[str, str]) -> Any:
        """Options, as Spark passes them."""
        return self.type("util.CaseInsensitiveStringMap")(values)

    def error(self, name: str, *arguments: Any) -> JavaAnswer:
        """A Java exception to be raised."""
        return JavaAnswer(name, self.type(name)(*arguments))

    def answer(self, error: Any) -> JavaAnswer:
        """An exception of the JVM to be raised there: unchanged, where Java lets it pass.

        Java hides checked exceptions, such as ``SparkException``, in one that says nothing, as
        Spark's interfaces declare none. Another one of the same error class passes.
        """
        text = str(error.toString())
        if any(is_instance_of(self._gateway, error, f"java.lang.{kind}") for kind in _UNCHECKED):
            return JavaAnswer(text, error)
        condition = None
        if is_instance_of(self._gateway, error, "org.apache.spark.SparkThrowable"):
            condition = error.getCondition()
        if condition is None:
            return self.error("java.lang.RuntimeException", text, error)
        to_map = self.static("org.apache.spark.api.python.PythonUtils", "toScalaMap")
        contexts = error.getQueryContext()
        return self.error(
            "org.apache.spark.SparkRuntimeException",
            condition,
            to_map(error.getMessageParameters()),
            error,
            contexts,
            contexts[0].summary() if len(contexts) else "",
        )

    def refusal(self, message: str) -> JavaAnswer:
        """What Spark shows as `pyspark.errors.IllegalArgumentException`."""
        return self.error("java.lang.IllegalArgumentException", message)


def texts(java_map: Any) -> dict[str, str]:
    """A Java map of texts.

    Py4J's own iterator ends with an exception of Java, which costs as much as a hundred calls.
    """
    if java_map.isEmpty():
        return {}
    return {key: java_map[key] for key in java_map.keySet().toArray()}


def kind_of(node: Any) -> str:
    """The simple name of an object's class: one call, and no object for the class."""
    name: str = _static(node._gateway_client, _CLASS_NAMES, "getSimpleName")(node)
    return name


def listed(array: Any) -> list[Any]:
    """The items of a Java array.

    Py4J asks for the length before each item, and once more at the end.
    """
    get = _static(array._gateway_client, _ARRAYS, "get")
    return [get(array, place) for place in range(len(array))]


@functools.cache
def _static(client: Any, java_class: str, method: str) -> Any:
    return getattr(JavaClass(java_class, client), method)


class JavaAnswer(Py4JJavaError):
    """A Java exception that Python code has made: it is raised in Spark unchanged."""


def interfaces(*names: str) -> type:
    """The ``Java`` attribute that Py4J needs: interfaces of ``org.apache.spark.sql``."""
    return type("Java", (), {"implements": [_SQL + name for name in names]})


class Callback:
    """A Python object behind Java interfaces; subclasses name them as ``Java``."""

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
        """31 bits of the object's identity."""
        return hash(id(self)) & 0x7FFFFFFF

    def toString(self) -> str:  # noqa: N802 - Java's name
        """For plans and logs."""
        return type(self).__name__

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None, of tables, scans and writes."""
        return self._jvm.array("connector.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802 - Java's name
        """Rows: Spark's scan of Python sources supports nothing else."""
        return self._jvm.constant("connector.read.Scan$ColumnarSupportMode", "UNSUPPORTED")


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def answer(self: Callback, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except JavaAnswer:
            raise
        except Py4JJavaError as error:  # of a call to Spark: unchanged, its message would be lost
            raise self._jvm.refusal(f"Spark: {error.java_exception.toString()}") from error
        except Exception as error:
            raise self._jvm.refusal(f"{type(error).__name__}: {error}") from error

    return answer

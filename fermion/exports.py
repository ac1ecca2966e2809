"""A package's exported names, each loaded from its module when it is first asked for (PEP 562).

So ``import fermion`` costs next to nothing, and a program that only reads never loads the writer,
the converter or the file systems. What is loaded makes its dataclasses by a decorator that needs a
sixth of the time.
"""

from __future__ import annotations

import importlib
import reprlib
import sys
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any


def load_when_asked_for(
    package: str,
    names: Mapping[str, Sequence[str]],
    *,
    into: str | None = None,
    moved_to_engine: bool = False,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, or of a module that exports names.

    names: Module, relative to the package, to the names that it has.
    into: Dotted name of the module that exports the names; the package itself by default.
    moved_to_engine: Whether names of the package's module ``engine`` are found here too, with a
        `DeprecationWarning` that says where they are.
    Returns: Names; what takes a name that the module does not hold yet, and gives the exported
        object, or the package's submodule of that name, and keeps it in the module; what lists the
        names.
    """
    exporting = into or package
    homes = {name: module for module, listed in names.items() for name in listed}

    def find(name: str) -> Any:
        if name not in homes:
            engine = importlib.import_module(f"{package}.engine") if moved_to_engine else None
            if engine is None or name not in engine.__all__:
                return _submodule(exporting, name)
            place = engine.__name__
            warnings.warn(
                f"{package}.{name} is now {place}.{name}; the old name goes with the next version",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(engine, name)
        exported = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(importlib.import_module(exporting), name, exported)
        return exported

    exported_names = list(homes)
    return exported_names, find, exported_names.copy


def _submodule(package: str, name: str) -> Any:
    """``fermion.errors`` works without an import of its own, as if everything were loaded."""
    dotted = f"{package}.{name}"
    if not name.startswith("_"):
        try:
            return importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            if error.name != dotted:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)


class LoadedWhenAskedFor:
    """A module that is loaded when the first of its names is asked for.

    For what a program may never do: ``clone = LoadedWhenAskedFor("fermion_table.commit.clone")``.
    Type checkers and import contracts see the import beside it, under ``TYPE_CHECKING``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __reduce__(self) -> tuple[type[LoadedWhenAskedFor], tuple[str]]:
        """Programs for Spark pickle functions with the names that they use."""
        return LoadedWhenAskedFor, (self._name,)

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        return getattr(self._module, name)


class MethodsWhenAskedFor:
    """Functions of a module as methods of a class; each loads the module when it is asked for.

    In the body of the class ``append = appending.append`` stands as if ``appending`` were the
    module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return _Method(self._name, name)


class _Method:
    """Stands for a method in its class until it is asked for."""

    def __init__(self, module: str, function: str) -> None:
        self._module, self._function = module, function

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        function = getattr(importlib.import_module(self._module), self._function)
        setattr(self._owner, self._name, function)
        return function.__get__(instance, owner)


class _Factory:
    """Stands for an argument that was not given, of a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()

if TYPE_CHECKING:
    import dataclasses
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTuple(type):
        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            types = body.pop("__annotations__")
            if [field in body for field in types] != sorted(field in body for field in types):
                raise TypeError(f"{name}: a field without a default follows one with a default")
            defaults = [body.pop(field) for field in types if field in body]
            made = namedtuple(name, types, defaults=defaults, module=body.pop("__module__"))
            made.__annotations__ = types
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_NamedTuple):
        """As `typing.NamedTuple`, which compiles the type of each field."""

    dataclasses = LoadedWhenAskedFor("dataclasses")

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, without ``order``, ``unsafe_hash`` and ``init``.

        The decorator of the standard library compiles six methods of a class, one by one, and a
        process that reads has a hundred such classes. This one compiles `__init__` alone, of
        classes of which many values are made. The others are closures that do the same.
        """
        return _made(cls, **options) if cls is not None else lambda cls: _made(cls, **options)


def _made(
    cls: Any, *, eq: bool = True, frozen: bool = False, repr: bool = True, **options: Any
) -> Any:
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard decorator would write a signature
    own = dict(cls.__dict__)
    # The standard decorator parses each type that is text, as it may say `ClassVar` or `KW_ONLY`.
    types = own.get("__annotations__", {})
    words = "ClassVar", "InitVar", "KW_ONLY"
    if not any(word in text for text in types.values() for word in words):
        cls.__annotations__ = dict.fromkeys(types)
    cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    cls.__annotations__ = types
    fields = dataclasses.fields(cls)
    for field in fields:
        field.type = types.get(field.name, field.type)
    methods: dict[str, Any] = {"__init__": _Initializer(cls, fields, frozen)}
    if repr:
        methods["__repr__"] = _shown([field.name for field in fields if field.repr])
    compared = [field for field in fields if field.compare]
    if eq:
        methods["__eq__"] = _equality(_values([field.name for field in compared]))
        if "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own):
            hashed = [field.name for field in compared if field.hash is not False]
            cls.__hash__ = _hash(_values(hashed)) if frozen else None
    if frozen:
        refusal = _refusal(cls, {field.name for field in fields})
        methods |= {"__setattr__": refusal, "__delattr__": refusal}
        if options.get("slots"):
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


class _Initializer:
    """Stands for ``__init__`` in its class, and is compiled when it is used often, or asked for."""

    def __init__(
        self, owner: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool
    ) -> None:
        self._arguments = owner, f"{owner.__qualname__}.__init__", fields, frozen
        self._uncompiled = 8  # so many calls take less than to compile

    def __get__(self, instance: object, owner: type) -> Any:
        self._uncompiled -= 1
        if instance is not None and self._uncompiled >= 0:
            return lambda *given, **named: self._fill(instance, given, named)
        method = _compiled_initializer(*self._arguments)
        self._arguments[0].__init__ = method
        return method.__get__(instance, owner)

    def _fill(self, value: object, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        cls, _, fields, frozen = self._arguments
        asked = [field for field in fields if field.init]
        places = [field.name for field in asked if not field.kw_only]
        arguments = {**named, **dict(zip(places, given, strict=False))}
        needed = {f.name for f in asked if f.default is f.default_factory}  # both are missing
        known = {field.name for field in asked}
        if len(arguments) < len(given) + len(named) or not needed <= arguments.keys() <= known:
            _compiled_initializer(*self._arguments)(value, *given, **named)  # refuses them
        for field in fields:
            if field.name in arguments:
                content = arguments[field.name]
            elif field.default is not dataclasses.MISSING:
                content = field.default
            elif field.default_factory is not dataclasses.MISSING:
                content = field.default_factory()
            else:
                continue
            (object.__setattr__ if frozen else setattr)(value, field.name, content)
        if hasattr(cls, "__post_init__"):
            value.__post_init__()  # type: ignore[attr-defined]


def _compiled_initializer(
    cls: Any, qualname: str, fields: tuple[dataclasses.Field[Any], ...], frozen: bool
) -> Any:
    """The method ``__init__``."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    given: list[str] = []
    by_name: list[str] = []
    body = []
    for field in fields:
        name, value = field.name, field.name
        made = field.default_factory is not dataclasses.MISSING
        has_default = made or field.default is not dataclasses.MISSING
        known[f"_default_{name}"] = field.default_factory if made else field.default
        if field.init:
            default = f"={'_factory' if made else f'_default_{name}'}" if has_default else ""
            (by_name if field.kw_only else given).append(f"{name}{default}")
            if made:
                value = f"_default_{name}() if {name} is _factory else {name}"
        elif has_default:
            value = f"_default_{name}{'()' if made else ''}"
        else:
            continue
        slot = getattr(cls, name, None) if frozen else None
        if isinstance(slot, MemberDescriptorType):  # half the time of `object.__setattr__`
            known[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *given, *(["*"] if by_name else []), *by_name])
    lines = "\n  ".join(body or ["pass"])
    source = (
        f"def make({', '.join(known)}):\n def __init__({parameters}):\n  {lines}\n return __init__"
    )
    made_here: dict[str, Any] = {}
    exec(source, sys.modules[cls.__module__].__dict__, made_here)
    method = made_here["make"](**known)
    method.__qualname__ = qualname
    types = {field.name: field.type for field in fields if field.init}
    method.__annotations__ = {**types, "return": None}
    return method


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807 - the method's name
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807 - the method's name
        return hash(values(self))

    return __hash__


def _shown(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807 - the method's name
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({fields})"

    shown: Any = reprlib.recursive_repr()(__repr__)
    shown.__wrapped__ = __repr__  # as in later versions of Python; `display` knows it by this
    return shown  # type: ignore[no-any-return]


def _refusal(cls: Any, names: set[str]) -> Callable[..., None]:
    """``__setattr__`` and ``__delattr__`` of a class whose fields do not change."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            action = "assign to" if value else "delete"
            raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")
        method = super(cls, self).__setattr__ if value else super(cls, self).__delattr__
        method(name, *value)

    return refuse


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

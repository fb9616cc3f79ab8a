"""Structs: arrays and numbers that belong together, and travel to compiled code as one pointer.

A struct is a class with annotated fields, as a dataclass: ``class Grid(Struct)`` with ``size: int`` and ``values: NDArray``. Its
instances are immutable (the arrays' contents are not). Python reads the fields as they were given. A kernel gets the address of
a table with a word for each number and the shape and address of each array, so that what a function costs to compile and to
call does not depend on how many arrays it can reach.

The object holds its arrays for as long as it lives, which is longer than any call it is an argument of. Arrays read from it in a
kernel are therefore not reference-counted: reading one is a few loads, in inner loops too. For the same reason a kernel must not
return one of them, or keep it.

Numba's own ``structref`` counts a reference at each read, and needs a compiled function for each field that Python reads.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import struct
import sys
from collections.abc import Iterator
from typing import Any, ClassVar, Self, dataclass_transform

import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)


@dataclass_transform(frozen_default=True)
class Struct:
    """Base of the classes whose instances kernels take as one pointer. Fields are arrays, numbers and other structs."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    #: Fields that are numbers become what they are annotated as, so that a kernel has one type of them.
    _numbers: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        annotated = inspect.get_annotations(cls)
        own = [name for name in annotated if not name.startswith("_")]
        cls._fields = (*cls._fields, *own)
        cls._defaults = cls._defaults | {name: getattr(cls, name) for name in own if name in cls.__dict__}
        kinds: dict[Any, Any] = {"bool": bool, "int": int, "float": float, bool: bool, int: int, float: float}
        cls._numbers = cls._numbers | {name: kinds[annotated[name]] for name in own if annotated[name] in kinds}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._fields, values, strict=False))
        if len(values) > len(self._fields) or given.keys() & named.keys() or named.keys() - set(self._fields):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}, each once.")
        found = self._defaults | given | named
        missing = [name for name in self._fields if name not in found]
        if missing:
            raise TypeError(f"{type(self).__name__} misses {', '.join(missing)}.")
        self.__dict__.update({name: found[name] for name in self._fields})
        self.__dict__.update({name: kind(found[name]) for name, kind in self._numbers.items()})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A {type(self).__name__} does not change; `_replace` makes another one.")

    def __iter__(self) -> Iterator[Any]:
        return (self.__dict__[name] for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._fields)})"

    def __reduce__(self) -> Any:
        return type(self), tuple(self)

    def _replace(self, **changes: Any) -> Self:
        """Return the same struct with other values of some fields."""
        return type(self)(**dict(zip(self._fields, self, strict=True)) | changes)

    def _copy(self) -> Self:
        """Return a struct of copies of the arrays."""
        return type(self)(*(one.copy() if isinstance(one, np.ndarray) else one for one in self))

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    @property
    def _numba_type_(self) -> StructType:
        kept: StructType | None = self.__dict__.get("_type")
        if kept is None:
            # Types are made once for fields that look the same: Numba takes long to find the type of an array.
            look = tuple(map(_look, self))
            kept = _types.get((type(self), look))
            if kept is None:
                kept = _types[type(self), look] = StructType(type(self), tuple(map(_typeof, self)))
            self.__dict__["_type"] = kept
        return kept

    @property
    def _address(self) -> int:
        """Where the table is that kernels read."""
        found: tuple[int, Any] | None = self.__dict__.get("_table")
        if found is None:
            words: list[int] = []
            for value in self:
                _add_words(value, words)
            table = np.array(words, np.int64)
            found = self.__dict__["_table"] = table.ctypes.data, table
        return found[0]


_types: dict[Any, StructType] = {}
# What an array says of itself, read past the attributes of record arrays, which are looked up in Python and take long.
_dtype, _n_dimensions, _flags = np.ndarray.dtype.__get__, np.ndarray.ndim.__get__, np.ndarray.flags.__get__
_shape, _strides, _ctypes = np.ndarray.shape.__get__, np.ndarray.strides.__get__, np.ndarray.ctypes.__get__


def _look(value: Any) -> Any:
    """All of a field that its type depends on."""
    if isinstance(value, np.ndarray):
        return _dtype(value), _n_dimensions(value), _flags(value).num
    return value._numba_type_ if isinstance(value, Struct) else type(value)


def _typeof(value: Any) -> Any:
    if isinstance(value, Struct):
        return value._numba_type_
    if isinstance(value, bool | np.bool_):
        return types.boolean
    if isinstance(value, int | np.integer):
        return types.int64
    if isinstance(value, float | np.floating):
        return types.float64
    return numba.typeof(value)


def _add_words(value: Any, words: list[int]) -> None:
    """What the table holds of one field: of an array Numba's own description of it, which has no owner."""
    if isinstance(value, np.ndarray):
        shape = _shape(value)
        words += (0, 0, math.prod(shape), _dtype(value).itemsize, _ctypes(value).data, *shape, *_strides(value))
    elif isinstance(value, Struct):
        words.append(value._address)
    elif isinstance(value, float | np.floating):
        words.append(int.from_bytes(struct.pack("d", value), sys.byteorder, signed=True))
    else:
        words.append(int(value))


class StructType(types.Type):
    """The type of a struct: its class, and the types of its fields."""

    def __init__(self, instance_class: type[Struct], field_types: tuple[Any, ...]) -> None:
        self.instance_class, self.field_types = instance_class, field_types
        self.places: dict[str, tuple[int, Any]] = {}
        at = 0
        for name, one in zip(instance_class._fields, field_types, strict=True):
            self.places[name] = at, one
            at += 5 + 2 * one.ndim if isinstance(one, types.Array) else 1
        named = ", ".join(f"{name}={one}" for name, one in zip(instance_class._fields, field_types, strict=True))
        super().__init__(name=f"{instance_class.__module__}.{instance_class.__qualname__}({named})")

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        """A short name, because the symbol of every function that takes the struct has it."""
        return f"{self.instance_class.__qualname__}{hashlib.sha256(self.name.encode()).hexdigest()[:12]}", ()


@typeof_impl.register(Struct)
def _type_of_struct(value: Struct, context: Any) -> StructType:
    return value._numba_type_


register_model(StructType)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, owner: StructType, name: str) -> Any:  # type: ignore[override]
        return owner.places[name][1] if name in owner.places else None


@lower_getattr_generic(StructType)
def _read_field(context: Any, builder: Any, owner: StructType, pointer: Any, name: str) -> Any:
    at, field = owner.places[name]
    word = cgutils.gep_inbounds(builder, builder.bitcast(pointer, cgutils.intp_t.as_pointer()), at)
    if isinstance(field, types.Array):
        array = builder.load(builder.bitcast(word, context.get_value_type(field).as_pointer()))
        # Constants, so that nothing is left of reference counts.
        for place in range(2):
            array = builder.insert_value(array, array.type.elements[place](None), place)
        return array
    value = builder.load(builder.bitcast(word, context.get_data_type(field).as_pointer()))
    return context.data_model_manager[field].from_data(builder, value)


@unbox(StructType)
def _unbox_struct(owner: StructType, instance: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(instance, "_address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))

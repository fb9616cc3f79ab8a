"""What Numba does again and again while it compiles kernels, done once.

- *Types of operators.* For each ``a + b`` and ``a[i]`` Numba tries the implementations of the operator that it has until one takes
  the types, when it infers types and again when it writes code. For numbers and arrays the answer depends on the types alone, so it
  is remembered until the kernel is compiled.
- *Garbage.* Compilation makes some millions of objects, of which most live until its end. The collector goes through them
  hundreds of times, unless it is told to wait for more of them.

Both are in force only while a function of this package is compiled, which Numba does in one thread at a time. Nothing about the
code changes. Of 24.6 s for a first fit of a multi-label model the first alone spared 5.5 and the last alone 3.8, in one run each.
"""

from __future__ import annotations

import gc
import operator
from typing import Any

from .sources import of_package

try:
    from numba.core import event, types
    from numba.core.types.functions import BaseFunction

    # Numba's stubs have no types for these.
    _events: Any = event
    _Function: Any = BaseFunction
    _REPLACEABLE = hasattr(BaseFunction, "get_call_type")
except ImportError:  # another Numba than those that are known
    _REPLACEABLE = False

#: Operators whose type on numbers and arrays Numba has in tables, not in functions that it would compile.
_OPERATORS = frozenset(
    (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.neg,
        operator.not_, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.le,
        operator.eq, operator.ne, operator.gt, operator.ge, operator.getitem, operator.setitem, operator.iadd, operator.isub,
        operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.iand, operator.ior, operator.ilshift,
        operator.irshift,
    )
)  # fmt: skip
#: New objects after which the collector looks at the youngest.
_MANY = 100_000


class _Shortcuts:
    """What is in force while kernels are compiled."""

    def __init__(self) -> None:
        self.depth = 0
        self.threshold = gc.get_threshold()
        #: By function and types of arguments; the function is held, so that its id stays its own.
        self.known: dict[Any, tuple[Any, Any]] = {}
        #: Numba's own way to find the type of a call, and the one that remembers.
        self.usual = _Function.get_call_type
        self.remembering = self.make_remembering(self.usual)

    def begin(self) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        self.threshold = gc.get_threshold()
        if 0 < self.threshold[0] < _MANY:
            gc.set_threshold(_MANY, *self.threshold[1:])
        _Function.get_call_type = self.remembering

    def end(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            _Function.get_call_type = self.usual
            self.known.clear()
            gc.set_threshold(*self.threshold)

    def make_remembering(self, usual: Any) -> Any:
        known = self.known

        def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
            if kws or function.typing_key not in _OPERATORS:
                return usual(function, context, args, kws)
            key = id(function), tuple(args)
            found = known.get(key)
            if found is None:
                found = usual(function, context, args, kws), function
                if all(isinstance(one, types.Number | types.Boolean | types.Array | types.Literal) for one in args):
                    known[key] = found
            return found[0]

        return get_call_type


if _REPLACEABLE:
    _shortcuts = _Shortcuts()

    class _Listener(_events.Listener):
        """Begins with the first function of this package, and ends with it."""

        def on_start(self, event: Any) -> None:
            function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
            if _shortcuts.depth > 0 or of_package(str(getattr(function, "__module__", ""))):
                _shortcuts.begin()

        def on_end(self, event: Any) -> None:
            if _shortcuts.depth > 0:
                _shortcuts.end()

    _events.register("numba:compile", _Listener())

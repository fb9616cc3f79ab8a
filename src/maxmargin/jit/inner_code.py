"""Code of functions that only kernels call: kept as LLVM's intermediate code, optimised once, inside the kernel that calls it.

Numba optimises each function by itself and emits machine code for it, and then all of it again inside each caller, so that the
functions at the bottom of a call tree are optimised as often as the tree is deep. Functions compiled with `InnerCompiler` are not:
their intermediate code is linked into whoever calls them, and what Python can call is optimised as a whole. When this was the only
change, a first fit of a multi-label model took 35 s instead of 52, and that of a chain 35 instead of 42.

This uses parts of Numba that it does not promise to keep. Where they are not as expected (`REPLACEABLE`), functions are compiled
in the usual way.
"""

from __future__ import annotations

from typing import Any

try:
    import llvmlite.binding as llvm  # type: ignore[import-untyped]
    from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
    from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
    from numba.core.compiler_machinery import LoweringPass, register_pass
    from numba.core.typed_passes import NopythonTypeInference

    #: Whether Numba has the parts that are replaced here.
    REPLACEABLE = all(
        hasattr(owner, name)
        for owner, names in (
            (CompileResult, ("_reduce", "_rebuild")),
            (CPUCodeLibrary, ("_optimize_final_module", "_finalize_final_module", "_get_module_for_linking")),
        )
        for name in names
    )
except ImportError:  # another Numba than those that are known
    REPLACEABLE = False

_KIND = "inner"

if REPLACEABLE:

    class InnerLibrary(JITCodeLibrary):
        """Intermediate code that is neither optimised nor made into machine code."""

        def _optimize_final_module(self) -> None:
            """Leave it to the library that this one is linked into."""

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            """There is no machine code."""
            self._ensure_finalized()
            return 0

        @property
        def codegen(self) -> Any:
            """The code generator, for whoever would write to the running code."""
            return _InnerCodegen(self._codegen)

        def serialize_using_object_code(self) -> tuple[str, str, bytes]:
            """What `rebuild` makes the library from."""
            self._ensure_finalized()
            return self.name, _KIND, self._get_module_for_linking().as_bitcode()

    class _InnerCodegen:
        """A code generator that has no running code."""

        def __init__(self, codegen: Any) -> None:
            self._codegen = codegen

        def __getattr__(self, name: str) -> Any:
            return getattr(self._codegen, name)

        def set_env(self, name: str, env: Any) -> None:
            """Only what runs has an environment."""

        def unserialize_library(self, state: tuple[str, str, bytes]) -> InnerLibrary:
            library = InnerLibrary(self._codegen, state[0])
            library._final_module = llvm.parse_bitcode(state[2])
            library._finalize_final_module()
            return library

    class _InnerTarget:
        """A target whose code generator is an `_InnerCodegen`."""

        def __init__(self, target: Any) -> None:
            self._target = target

        def __getattr__(self, name: str) -> Any:
            return getattr(self._target, name)

        def codegen(self) -> _InnerCodegen:
            return _InnerCodegen(self._target.codegen())

    @register_pass(mutates_CFG=False, analysis_only=True)
    class _MakeInnerLibrary(LoweringPass):
        _name = "make_inner_library"

        def __init__(self) -> None:
            LoweringPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            return True

    class InnerCompiler(CompilerBase):
        """Numba's compiler, but that the code goes into an `InnerLibrary`."""

        def define_pipelines(self) -> list[Any]:
            """Numba's passes, and one that chooses the library."""
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(_MakeInnerLibrary, NopythonTypeInference)
            passes.finalize()
            return [passes]


def rebuild(target: Any, payload: tuple[Any, ...]) -> Any:
    """The compiled function that was reduced to `payload`, of either kind."""
    made: Any = CompileResult
    if payload[0][1] == _KIND:
        return made._rebuild(_InnerTarget(target), *payload)._replace(target_context=target)
    return made._rebuild(target, *payload)

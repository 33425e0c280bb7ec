"""How kernels are compiled, and the one operation that numba lacks.

The cache of compiled code notices a change in a kernel's own file only. A change here must
therefore raise EDITION, which both files of kernels repeat.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

EDITION = 1

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# Not imported in the usual way, because numba's annotations cover only a part of it.
numba: Any = import_module("numba")
_extending: Any = import_module("numba.extending")
_code_generation: Any = import_module("numba.core.cgutils")

types: Any = numba.types

if numba.config.DISABLE_JIT:
    raise ImportError("numba is switched off by NUMBA_DISABLE_JIT")

# What kernels take. A kernel that only reads an array takes writable ones, too, so that it is
# compiled once.
BYTES_READ = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_WRITTEN = types.Array(types.uint8, 1, "C")
INTEGERS_READ = types.Array(types.int64, 1, "C", readonly=True)
INTEGERS_WRITTEN = types.Array(types.int64, 1, "C")

# Counting references to arrays, which the caller holds anyway, would take most of the time.
_OPTIONS = {"nogil": True, "_nrt": False}


def table_type(table: Any, fields: str) -> Any:
    """The type of a table of writable arrays, whose fields the kernel's own file must name."""
    assert fields.split() == list(table._fields)
    return types.NamedUniTuple(INTEGERS_WRITTEN, len(table._fields), table)


def kernel(signature: Any) -> Callable[[Kernel], Kernel]:
    """Compiled when its module is imported, or taken from the cache."""
    compiled: Callable[[Kernel], Kernel] = numba.njit(signature, cache=True, **_OPTIONS)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """A part of kernels."""
    compiled: Kernel = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def _copy_bytes(
    typing_context: Any, target: Any, target_position: Any, source: Any, position: Any, length: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_position, source, position, length = arguments
        target_array = context.make_array(signature.args[0])(context, builder, target)
        source_array = context.make_array(signature.args[2])(context, builder, source)
        _code_generation.raw_memcpy(
            builder,
            builder.gep(target_array.data, [target_position]),
            builder.gep(source_array.data, [position]),
            length,
            1,
        )
        return context.get_dummy_value()

    integer = types.int64
    return types.void(target, integer, source, integer, integer), generate


# The processor's own copy, without any check: a loop over bytes takes forty times as long.
copy_bytes: Any = _extending.intrinsic(_copy_bytes)

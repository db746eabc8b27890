"""Compiled robots on disk: to compile one takes ten seconds, of every start of a controller.

Numba's own cache knows a kernel by its file alone, and would go on using a robot model that was
edited since. This one knows a kernel by all that it is made of: the source of this package, and the
functions of the robot with whatever they call and use.
"""

import contextlib
import functools
import hashlib
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType

import numba
import numpy as np
from numba.core import typing
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes, BuiltinFunctionType)


class UnknownContent(TypeError):
    """What a function uses cannot be told from what it used when it was compiled."""


def compile_kept(kernel: Callable, made_of: tuple, **flags) -> Dispatcher:
    """Return ``numba.njit(**flags)(kernel)``, which uses what was compiled before, if it can.

    Files are where Numba keeps its own: in NUMBA_CACHE_DIR, beside the module, or in the user's
    cache folder. Where none can be written, or where ``made_of`` holds what cannot be compared,
    the kernel is compiled each time.

    Parameters
    ----------
    kernel : callable
        Of a module of this package.
    made_of : tuple
        Functions and plain values, that are all that may differ between two kernels of this name.
    flags
        Of :func:`numba.njit`.
    """
    try:
        identity = fingerprint((made_of, flags, _package_source()))
    except UnknownContent:
        return numba.njit(**flags)(kernel)
    # Under a name that no other kernel has: Numba names its files so, and what it links.
    kernel.__qualname__ = f"{kernel.__name__}-{identity[:32]}"
    compiled = numba.njit(**flags)(kernel)
    with contextlib.suppress(RuntimeError):  # Numba's, where no folder can be written
        compiled._cache = _KernelCache(kernel)
    return compiled


def fingerprint(value: object) -> str:
    """Return a hash of a value: of a function that of its code and of all that it uses.

    Raises
    ------
    UnknownContent
        If something in it is neither a function, a module of NumPy or of the standard library's
        mathematics, nor a plain value.
    """
    digest = hashlib.sha256()
    _add(value, digest.update, {})
    return digest.hexdigest()


class _KernelCache(FunctionCache):
    """Numba's, for kernels whose name tells all that they are made of.

    Signatures hold named tuples of parameters, whose types are new in every process; a type's
    name and its fields' types are the same.
    """

    def _index_key(self, sig, codegen):
        return str(sig), codegen.magic_tuple()

    def load_overload(self, sig, target_context):
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # whatever a damaged file makes pickle raise
            warnings.warn(f"compiled again: {self._cache_path}: {error!r}", stacklevel=2)
            return None
        if found is None:
            return None
        return found._replace(signature=typing.signature(found.signature.return_type, *sig))

    def save_overload(self, sig, data):
        try:
            try:
                super().save_overload(sig, data)
            except (EOFError, ValueError, pickle.UnpicklingError):
                # The index is damaged, as a power cut leaves a file.
                self.flush()
                super().save_overload(sig, data)
        except Exception as error:
            warnings.warn(f"not kept: {self._cache_path}: {error!r}", stacklevel=2)


@functools.cache
def _package_source() -> bytes:
    """Return a hash of this package's source, which kernels are made of."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


def _add(value: object, update: Callable[[bytes], None], seen: dict[int, int]) -> None:
    """Add a value; ``seen`` has the functions that were added, by identity, and when."""
    kind = type(value)
    update(f"({kind.__name__} ".encode())
    if isinstance(value, Dispatcher):
        _add(value.targetoptions, update, seen)
        _add(value.py_func, update, seen)
    elif kind is FunctionType:
        if id(value) in seen:
            update(f"number {seen[id(value)]}".encode())
        else:
            seen[id(value)] = len(seen)
            _add_function(value, update, seen)
    elif kind is CodeType:
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount
        update(value.co_code)
        for part in (value.co_consts, value.co_names, value.co_varnames, value.co_freevars):
            _add(part, update, seen)
        _add((*counts, value.co_flags), update, seen)
    elif kind in (tuple, list):
        for item in value:
            _add(item, update, seen)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        _add((value._fields, tuple(value)), update, seen)
    elif kind is np.ndarray and not value.dtype.hasobject:
        update(repr((value.dtype.str, value.shape, value.tobytes())).encode())
    elif kind in _PLAIN or isinstance(value, np.generic) and kind.__module__ == "numpy":
        update(repr(value).encode())
    elif kind in (frozenset, set, dict):
        _add(sorted(value.items() if kind is dict else value, key=repr), update, seen)
    elif value is math or value is np or kind is type and value.__module__ == "numpy":
        update(value.__name__.encode())
    else:
        raise UnknownContent(f"{value!r}")
    update(b")")


def _add_function(
    function: FunctionType, update: Callable[[bytes], None], seen: dict[int, int]
) -> None:
    _add(function.__code__, update, seen)
    _add((function.__defaults__, function.__kwdefaults__), update, seen)
    for cell in function.__closure__ or ():
        _add(cell.cell_contents, update, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            update(name.encode())
            _add(function.__globals__[name], update, seen)


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and those inside it look up."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))

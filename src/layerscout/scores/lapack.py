"""Routines of LAPACK that let other threads run meanwhile."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cython_lapack


def find_routine(name: str) -> Any:
    """Give a routine of LAPACK, which takes pointers only.

    Those of scipy.linalg.lapack hold the interpreter's lock, so states that are scored at the same
    time would wait for each other. SciPy offers the same routines to compiled code.
    """
    # SciPy 1.17: while its dsytrd reduces 1,200 features in 0.38 s, another thread stands still for
    # 0.37 s of them; both calls give the same bits in the same processor time. Those of torch take
    # twice the time on AMD's processors: 47 ms against 24 for a triangular system of 768 × 1,000.
    capsule = cython_lapack.__pyx_capi__[name]
    name_of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return ctypes.CFUNCTYPE(None)(pointer(capsule, name_of(capsule)))


def list_arguments(*values: bytes | int | np.ndarray) -> list[Any]:
    """Give what a routine takes for letters, numbers and arrays, which it changes in place."""
    return [
        value
        if isinstance(value, bytes)
        else value.ctypes.data_as(ctypes.c_void_p)
        if isinstance(value, np.ndarray)
        else ctypes.byref(ctypes.c_int(value))
        for value in values
    ]


_factorise, _solve = find_routine("dpotrf"), find_routine("dtrtrs")


def whiten(
    matrix: Float64[np.ndarray, "d d"], shift: float, columns: Float64[np.ndarray, "d m"]
) -> Float64[np.ndarray, "d m"] | None:
    """Solve L x = `columns` with the Cholesky factor L of a symmetric matrix.

    Args:
        matrix: of which the upper triangle is read, in the row order.
        shift: what is added to its diagonal.
        columns: right-hand sides.

    Returns:
        In the column order; None where the matrix is not positive definite.
    """
    d, m = columns.shape
    # In the row order an upper triangle is a lower one in LAPACK's order.
    factor = np.array(matrix, np.float64, order="C")
    found = np.array(columns, np.float64, order="F")
    info = ctypes.c_int(0)
    factor[np.diag_indices(d)] += shift
    _factorise(*list_arguments(b"L", d, factor, d), ctypes.byref(info))
    if info.value:
        return None
    _solve(*list_arguments(b"L", b"N", b"N", d, m, factor, d, found, d), ctypes.byref(info))
    return None if info.value else found

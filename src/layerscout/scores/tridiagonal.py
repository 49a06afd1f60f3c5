"""Symmetric matrices made tridiagonal once, so that each of many ridge terms costs only a band."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cython_lapack
from scipy.linalg.lapack import dormqr, dpbtrf, dtbtrs

# Columns that are reduced together: fewer than LAPACK's 32 are faster for some hundred features.
BLOCK = 16


def _find_dsytrd() -> Any:
    """Return LAPACK's reduction, called without the interpreter's lock.

    NumPy has no such routine, and SciPy's holds the lock: states that are scored at the same time
    would wait for each other (0.37 s at 1,200 features). With 2 classes and 768 features, a
    Cholesky factorisation for each of the 7 ridge terms takes twice as long, an `eigh` three times.
    """
    capsule, api = cython_lapack.__pyx_capi__["dsytrd"], ctypes.pythonapi
    name_of, pointer_of = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    pointer_of.argtypes, pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return ctypes.CFUNCTYPE(None)(pointer_of(capsule, name_of(capsule)))


_dsytrd = _find_dsytrd()


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric matrix as QTQᵀ, T tridiagonal and Q orthogonal.

    Attributes:
        bands: the diagonal of T, and what is below it with a 0 at the end, (2, d).
        reflectors: Q as LAPACK keeps it, in Householder reflections that leave the first unit
            vector as it is, (d − 1, d − 1).
        factors: of the reflections, (d − 1,).
    """

    bands: Float64[np.ndarray, "2 d"]
    reflectors: Float64[np.ndarray, "r r"]
    factors: Float64[np.ndarray, " r"]

    @classmethod
    def of(cls, matrix: Float64[np.ndarray, "d d"]) -> Tridiagonal:
        """Reduce a symmetric matrix, of which only the upper triangle is read, in its place."""
        matrix = np.ascontiguousarray(matrix, np.float64)
        d = len(matrix)
        bands, factors, room = np.zeros((2, d)), np.zeros(max(1, d - 1)), np.empty(BLOCK * d)
        size, length, failed = ctypes.c_int(d), ctypes.c_int(BLOCK * d), ctypes.c_int(0)
        # Transposed, it is a lower triangle in the column order of LAPACK.
        arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (*bands, factors, room)]
        by_row, n = matrix.ctypes.data_as(ctypes.c_void_p), ctypes.byref(size)
        _dsytrd(b"L", n, by_row, n, *arrays, ctypes.byref(length), ctypes.byref(failed))
        return cls(bands, np.asfortranarray(matrix.T[1:, :-1]), factors[: d - 1])

    def turn(
        self, columns: Float64[np.ndarray, "d m"], *, back: bool = False
    ) -> Float64[np.ndarray, "d m"]:
        """Return Qᵀ times the columns, or Q times them."""
        turned = columns.copy(order="F")
        if len(turned) > 1:
            # LAPACK takes this much room as a sign to do without blocks where columns are few.
            room = 64 * turned.shape[1]
            turned[1:], _, _ = dormqr(
                "L", "N" if back else "T", self.reflectors, self.factors, turned[1:], room
            )
        return turned

    def solve(
        self, shift: float, turned: Float64[np.ndarray, "d m"]
    ) -> tuple[Float64[np.ndarray, "d m"], Float64[np.ndarray, "d m"]] | None:
        """Solve with the matrix plus `shift` times the identity, in the turned basis.

        Args:
            shift: what is added to the diagonal.
            turned: Qᵀ times the right-hand sides.

        Returns:
            R⁻ᵀ and R⁻¹R⁻ᵀ times `turned`, RᵀR being the Cholesky factors of T + shift · I; None
            where that is not positive definite.
        """
        factor, failed = dpbtrf(self.bands + np.array([[shift], [0.0]]), lower=1)
        if failed:
            return None
        whitened, _ = dtbtrs(factor, turned, uplo="L")
        solution, _ = dtbtrs(factor, whitened, uplo="L", trans="T")
        return whitened, solution

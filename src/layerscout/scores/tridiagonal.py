"""Symmetric matrices made tridiagonal: half the way to eigenvectors, and often all that is needed.

What is left costs no more than a band: a system of equations for every ridge term, or the
coordinates of a few vectors along all eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.linalg.lapack import dormqr, dpbtrf, dsterf, dstevd, dtbtrs

from layerscout.scores.lapack import find_routine, list_arguments

# Columns that are reduced together: fewer than LAPACK's 32 are faster for some hundred features.
BLOCK = 16
NOT_FOUND = "the eigenvalues of a symmetric matrix did not converge"


# Where right-hand sides are few, a Cholesky factorisation for each of the 7 ridge terms takes 2.4
# times as long as this form at 768 features (88 against 37 ms for a training set and 2 classes),
# and NumPy's eigh 1.8 times in LogME (106 against 60).
_reduce = find_routine("dsytrd")


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
        d = len(matrix)
        matrix = np.ascontiguousarray(matrix)
        bands, factors, room = np.zeros((2, d)), np.zeros(max(1, d - 1)), np.empty(BLOCK * d)
        # Transposed, it is a lower triangle in the column order of LAPACK.
        of = (b"L", d, matrix, d, bands[0], bands[1], factors, room, BLOCK * d, 0)
        _reduce(*list_arguments(*of))
        return cls(bands, np.asfortranarray(matrix.T[1:, :-1]), factors[: d - 1])

    def turn(
        self, columns: Float64[np.ndarray, "d m"], *, back: bool = False
    ) -> Float64[np.ndarray, "d m"]:
        """Give Qᵀ times the columns, or Q times them."""
        turned = columns.copy(order="F")
        if len(turned) > 1:
            # LAPACK takes this much room as a sign to do without blocks where columns are few.
            room = 64 * turned.shape[1]
            turned[1:], _, _ = dormqr(
                "L", "N" if back else "T", self.reflectors, self.factors, turned[1:], room
            )
        return turned

    def eigenvalues(self) -> Float64[np.ndarray, " d"]:
        """Give the eigenvalues, in ascending order.

        Raises:
            numpy.linalg.LinAlgError: if they are not found.
        """
        eigenvalues, failed = dsterf(*self._halves())
        if failed:
            raise np.linalg.LinAlgError(NOT_FOUND)
        found: np.ndarray = eigenvalues
        return found

    def along_eigenvectors(
        self, columns: Float64[np.ndarray, "d m"]
    ) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, "d m"]]:
        """Give the eigenvalues, in ascending order, and the columns in the basis of eigenvectors.

        Raises:
            numpy.linalg.LinAlgError: if they are not found.
        """
        eigenvalues, vectors, failed = dstevd(*self._halves())
        if failed:
            raise np.linalg.LinAlgError(NOT_FOUND)
        return eigenvalues, vectors.T @ self.turn(columns)

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
        factor = self._factor(shift)
        if factor is None:
            return None
        whitened, _ = dtbtrs(factor, turned, uplo="L")
        solution, _ = dtbtrs(factor, whitened, uplo="L", trans="T")
        return whitened, solution

    def _factor(self, shift: float) -> Float64[np.ndarray, "2 d"] | None:
        factor, failed = dpbtrf(self.bands + np.array([[shift], [0.0]]), lower=1)
        return None if failed else factor

    def _halves(self) -> tuple[np.ndarray, np.ndarray]:
        diagonal, below = self.bands
        return diagonal, below[: max(1, len(below) - 1)]  # LAPACK wants one even where d is 1

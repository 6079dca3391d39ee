"""Leading subspaces of a matrix, by products with a few random vectors."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._linalg import matmul
from .._typing import PRNGKey


def leading_rows(
    key: PRNGKey, matrix: Float[Array, "n d"], size: int, num_iterations: int
) -> tuple[Float[Array, "n s"], Float[Array, "s"], Float[Array, "s d"]]:
    r"""About the `size` largest singular triplets of a matrix, by randomized subspace iteration.

    $Y = (MM^\top)^q M\Omega$ with random $\Omega$, orthonormalized at every product so that small directions survive,
    then an exact decomposition of $Q^\top M$. The error of a triplet falls as $(\sigma_{s+1}/\sigma_i)^{2q+1}$.

    Cost: $2q + 2$ products of $n \times d \times s$. Reference: Halko, Martinsson and Tropp (2011), algorithm 4.4.
    """
    start = matmul(matrix, jr.normal(key, (matrix.shape[1], size), matrix.dtype))
    orthonormal = lambda a: jnp.linalg.qr(a)[0]

    def refine(_, basis):
        return orthonormal(matmul(matrix, orthonormal(matmul(matrix.T, basis))))

    basis = jax.lax.fori_loop(0, num_iterations, refine, orthonormal(start))
    left, values, right = jnp.linalg.svd(matmul(basis.T, matrix), full_matrices=False)
    return matmul(basis, left), values, right

"""Batched factorizations and solves: those of the library, in any nesting, and never waiting for each other."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from probml_jax._lapack import cholesky_factor, solve_triangular


def _stack(*shape, seed=0):
    rng = np.random.default_rng(seed)
    d = shape[-1]
    return jnp.asarray(np.tril(rng.normal(size=(*shape, d))) + 4 * np.eye(d))


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("unit", [False, True])
def test_solves_are_those_of_scipy(trans, unit):
    # 60 x 40 x 40 x 3 multiplications: more than are done on the spot
    factors, b = _stack(4, 15, 40), jnp.asarray(np.random.default_rng(1).normal(size=(15, 40, 3)))
    factors = factors / 40 if unit else factors
    ours = lambda f, b: solve_triangular(f, b, trans=trans, unit_diagonal=unit)
    theirs = lambda f, b: jax.scipy.linalg.solve_triangular(f, b, lower=True, trans=trans, unit_diagonal=unit)
    nested = lambda solve: jax.jit(jax.vmap(jax.vmap(solve), in_axes=(0, None)))(factors, b)
    np.testing.assert_allclose(nested(ours), nested(theirs), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours(factors[0, 0], b[0, :, 0]), theirs(factors[0, 0], b[0, :, 0]), rtol=1e-12)
    on_arrays = lambda f, b: ours(jnp.asarray(f), jnp.asarray(b))  # finite differences come as NumPy
    check_grads(on_arrays, (factors[0, 0, :4, :4], b[0, :4]), order=2, modes=["fwd", "rev"], rtol=1e-5)


def test_factors_are_those_of_the_library():
    factors = _stack(50, 30)
    matrices = factors @ jnp.swapaxes(factors, 1, 2)
    np.testing.assert_allclose(jax.vmap(cholesky_factor)(matrices), jnp.linalg.cholesky(matrices), rtol=1e-10)
    score = lambda factor: lambda a: jnp.sum(jnp.sin(jax.vmap(factor)(a)))
    slopes = [jax.grad(score(f))(matrices) for f in (cholesky_factor, jnp.linalg.cholesky)]
    np.testing.assert_allclose(*slopes, rtol=1e-8, atol=1e-10)
    assert np.all(np.isnan(cholesky_factor(-jnp.eye(2))[0, 0]))


SIDE_BY_SIDE = """
import jax, jax.numpy as jnp, numpy as np
from probml_jax._lapack import cholesky_factor, solve_triangular
a = np.tril(np.random.default_rng(0).normal(size=(16, 150, 150))) / 15 + np.eye(150)
a, b = a.astype("float32"), np.ones((16, 150, 150), "float32")
solve = jax.jit(lambda a, b: [jax.vmap(solve_triangular)(s * a, b) for s in (1.0, 2.0, 3.0, 4.0)])
factor = jax.jit(lambda a: [jax.vmap(cholesky_factor)(s * a @ jnp.swapaxes(a, 1, 2)) for s in (1.0, 2.0, 3.0, 4.0)])
for _ in range(20):
    jax.block_until_ready((solve(a, b), factor(a)))
"""


def test_batches_side_by_side_do_not_wait_for_each_other():
    """With the library's own batched calls this program never ends (jaxlib 0.10.2, two cores)."""
    subprocess.run([sys.executable, "-c", SIDE_BY_SIDE], check=True, timeout=120)

"""Factorizations with a status, and predicates that stay single under vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from probml_jax import _linalg as la
from probml_jax._special import any_in_batch, logsumexp, missing_in_batch, safe_log, xlogy

_a = np.random.default_rng(0).normal(size=(4, 4))
PD = jnp.asarray(_a @ _a.T + 0.1 * np.eye(4))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sound_matrix_is_factorized_untouched(dtype):
    a = PD.astype(dtype)
    result = la.cholesky(a)
    assert not result.helped
    assert result.factor.dtype == a.dtype
    np.testing.assert_array_equal(result.factor, jnp.linalg.cholesky(a))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_singular_matrix_is_helped_relative_to_its_scale(dtype, scale):
    v = jnp.asarray(_a[:, :2], dtype) * np.sqrt(scale)
    a = (v @ v.T).astype(dtype)
    result = jax.jit(la.cholesky)(a)
    assert np.isfinite(result.factor).all()
    tol = {"float32": 1e-4, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(result.factor @ result.factor.T, a, atol=tol * scale * 4)


def test_an_indefinite_matrix_gives_nan_and_says_so():
    result = la.cholesky(jnp.diag(jnp.array([1.0, -1.0])))
    assert result.helped
    assert np.isnan(result.jitter)
    assert np.isnan(result.factor).all()
    assert la.cholesky(jnp.full((2, 2), jnp.nan)).helped


def test_gradients_and_second_derivatives():
    f = lambda a: jnp.sum(jnp.sin(la.cholesky(a @ a.T + jnp.eye(4)).factor))
    check_grads(f, (jnp.asarray(_a),), order=2, modes=["fwd", "rev"], rtol=1e-5)


def test_the_gradient_is_jaxs_own():
    f = lambda chol: jax.grad(lambda a: jnp.sum(jnp.cos(chol(a))))(PD)
    np.testing.assert_allclose(f(lambda a: la.cholesky(a).factor), f(jnp.linalg.cholesky), rtol=1e-9)


def test_under_vmap_only_the_sick_member_is_helped():
    batch = jnp.stack([PD, jnp.ones((4, 4))])
    result = jax.vmap(la.cholesky)(batch)
    np.testing.assert_array_equal(result.helped, [False, True])
    np.testing.assert_array_equal(result.factor[0], jnp.linalg.cholesky(PD))


def test_solves():
    b = jnp.arange(4.0)
    factor = la.cholesky(PD).factor
    np.testing.assert_allclose(PD @ la.cho_solve(factor, b), b, atol=1e-10)
    np.testing.assert_allclose(la.inv_psd(PD) @ PD, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(la.log_det(factor), np.linalg.slogdet(PD)[1], rtol=1e-12)
    whiten = la.inverse_factor(PD)
    np.testing.assert_allclose(whiten @ PD @ whiten.T, np.eye(4), atol=1e-9)


def test_eigenvalues_are_clipped_in_units_of_the_floor():
    floor = jnp.array([0.5, 2.0])
    below = jnp.array([[0.1, 0.0], [0.0, 5.0]])
    np.testing.assert_allclose(la.clip_eigenvalues(below, floor), [[0.5, 0], [0, 5.0]], atol=1e-12)
    above = jnp.array([[1.0, 0.3], [0.3, 5.0]])
    np.testing.assert_array_equal(la.clip_eigenvalues(above, floor), above)
    slope = jax.jacobian(lambda a: la.clip_eigenvalues(a, floor))(jnp.eye(2) * 3)
    assert np.isfinite(slope).all()


def test_clipping_is_the_constrained_maximum_likelihood():
    """No other covariance above the floor has a higher Gaussian likelihood of the same scatter."""
    scatter = jnp.array([[1.0, 0.98], [0.98, 1.0]])
    floor = jnp.array([0.1, 0.1])
    value = lambda s: -0.5 * (np.linalg.slogdet(s)[1] + np.trace(np.linalg.solve(s, scatter)))
    best = np.asarray(la.clip_eigenvalues(scatter, floor))
    rng = np.random.default_rng(0)
    for _ in range(200):
        step = rng.normal(size=(2, 2)) * 0.05
        other = best + step + step.T
        if np.linalg.eigvalsh(other - np.diag(floor)).min() >= 0:
            assert value(other) <= value(best) + 1e-12


def test_a_flag_over_the_batch_stays_one_flag():
    rare = lambda x: jax.lax.cond(any_in_batch(x > 5), lambda x: x * 0, lambda x: x, x)
    np.testing.assert_array_equal(jax.vmap(rare)(jnp.arange(4.0)), np.arange(4.0))
    np.testing.assert_array_equal(jax.vmap(rare)(jnp.arange(4.0, 8.0)), np.zeros(4))
    text = jax.jit(jax.vmap(jax.vmap(rare))).lower(jnp.zeros((2, 3))).as_text()
    assert "case" in text or "if" in text
    slope = jax.grad(lambda x: jnp.sum(jax.vmap(rare)(x)))(jnp.arange(4.0))
    np.testing.assert_array_equal(slope, np.ones(4))


def test_missing_in_batch():
    assert not missing_in_batch(jnp.ones(3))
    assert missing_in_batch(jnp.array([1.0, jnp.nan]))


def test_special_functions_at_the_boundary():
    assert safe_log(jnp.array(0.0)) == -jnp.inf
    assert jax.grad(safe_log)(0.0) == 0
    assert xlogy(jnp.array(0.0), jnp.array(0.0)) == 0
    assert xlogy(jnp.array(1.0), jnp.array(0.0)) == -jnp.inf
    nowhere = jnp.full(3, -jnp.inf)
    assert logsumexp(nowhere) == -jnp.inf
    np.testing.assert_array_equal(
        jax.grad(lambda a: jnp.where(logsumexp(a) == -jnp.inf, 0.0, logsumexp(a)))(nowhere), np.zeros(3)
    )

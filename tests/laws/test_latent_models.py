"""Laws that every latent model obeys, run over the registry in float32 and float64."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import MODELS

import probml_jax as pml
from probml_jax._constraint import split
from probml_jax.methods.em import pooled_e_step
from probml_jax.methods.gradient import slope

DTYPES = ["float32", "float64"]
TOL = {"float32": 2e-5, "float64": 1e-10}
everywhere = pytest.mark.parametrize("dtype", DTYPES)
every_model = pytest.mark.parametrize("name", list(MODELS))
smooth = [name for name in MODELS if name != "kmeans"]


@functools.cache
def make(name, dtype):
    model, data = MODELS[name](jnp.dtype(dtype))
    n = jax.tree_util.tree_leaves(data)[0].shape[0]
    weights = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2.0, n), dtype)
    return model, data, weights


@functools.cache
def converged(name):
    model, data, weights = make(name, "float64")
    return pml.fit(model, data, weights=weights, max_steps=3000, rtol=1e-15)


def close(a, b, dtype, scale=1.0):
    tol = TOL[dtype] * scale
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol * max(1.0, float(np.max(np.abs(y), initial=0))))


e_step = eqx.filter_jit(lambda model, data, weights: model.e_step(data, weights))
take = lambda data, index: jax.tree_util.tree_map(lambda a: a[index], data)


@everywhere
@every_model
def test_the_e_step_bound_is_the_weighted_sum_of_log_probs(name, dtype):
    model, data, weights = make(name, dtype)
    _, bound = e_step(model, data, weights)
    scores = jax.jit(jax.vmap(model.log_prob))(data)
    assert bound.dtype == scores.dtype == jnp.dtype(dtype)
    np.testing.assert_allclose(bound, np.sum(np.asarray(weights, np.float64) * np.asarray(scores)), rtol=TOL[dtype])


@everywhere
@every_model
def test_the_pooled_likelihood_is_the_e_step_bound(name, dtype):
    model, data, weights = make(name, dtype)
    np.testing.assert_allclose(
        jax.jit(model.log_likelihood)(data, weights), e_step(model, data, weights)[1], rtol=TOL[dtype]
    )


@everywhere
@every_model
def test_every_step_of_em_climbs_and_keeps_type_and_dtype(name, dtype):
    model, data, weights = make(name, dtype)
    result = pml.fit(model, data, weights=weights, max_steps=30, rtol=-1.0)
    trace = np.asarray(result.objective)[: int(result.num_steps) + 1]
    noise = {"float32": 2e-5, "float64": 1e-11}[dtype] * np.abs(trace).max()  # rounding of a sum of this size
    assert trace.size > 1
    assert np.diff(trace).min() > -noise
    assert result.status in (pml.Status.max_steps, pml.Status.converged)
    assert jax.tree_util.tree_structure(result.model) == jax.tree_util.tree_structure(model)
    for old, new in zip(jax.tree_util.tree_leaves(model), jax.tree_util.tree_leaves(result.model), strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
    objective = pml.objective(result.model, data, weights)
    np.testing.assert_allclose(result.final_objective, objective, rtol=TOL[dtype])


@everywhere
@every_model
def test_statistics_add_over_blocks_of_any_size(name, dtype):
    model, data, weights = make(name, dtype)
    whole = e_step(model, data, weights)
    blocks = jax.jit(lambda m, d, w: pooled_e_step(m, d, w, 17))(model, data, weights)
    close(blocks, whole, dtype, 20)


@everywhere
@every_model
def test_statistics_do_not_depend_on_the_order_of_units(name, dtype):
    model, data, weights = make(name, dtype)
    order = np.random.default_rng(1).permutation(weights.size)
    close(e_step(model, take(data, order), weights[order]), e_step(model, data, weights), dtype, 20)


@every_model
def test_a_whole_weight_is_a_repetition(name):
    model, data, _ = make(name, "float64")
    n = jax.tree_util.tree_leaves(data)[0].shape[0]
    counts = np.random.default_rng(2).integers(0, 3, n)
    repeated = take(data, np.repeat(np.arange(n), counts))
    ones = jnp.ones(int(counts.sum()))
    close(e_step(model, data, jnp.asarray(counts, float)), e_step(model, repeated, ones), "float64")


@every_model
def test_units_of_zero_weight_pad(name):
    model, data, weights = make(name, "float64")
    n = weights.size
    padded = take(data, np.r_[np.arange(n), np.zeros(9, int)])
    close(e_step(model, padded, jnp.r_[weights, jnp.zeros(9)]), e_step(model, data, weights), "float64")


@pytest.mark.parametrize("name", smooth)
def test_fishers_identity(name):
    """The gradient of Q at its reference is the gradient of the log-likelihood."""
    model, data, weights = make(name, "float64")
    free, rebuild = split(model)
    of_q = jax.jit(jax.grad(lambda raw: rebuild(raw).surrogate(data, weights, model)))(free)
    of_likelihood = jax.jit(jax.grad(lambda raw: rebuild(raw).log_likelihood(data, weights)))(free)
    close(of_q, of_likelihood, "float64", 100)


@pytest.mark.parametrize("name", smooth)
def test_the_gradient_vanishes_where_em_stops(name):
    """EM and gradients climb the same line."""
    _, data, weights = make(name, "float64")
    fitted = converged(name)
    start = jax.jit(slope)(make(name, "float64")[0], data, weights)
    end = jax.jit(slope)(fitted.model, data, weights)
    norm = lambda tree: max(float(jnp.abs(leaf).max()) for leaf in jax.tree_util.tree_leaves(tree))
    assert fitted.status == pml.Status.converged
    assert norm(end) < 1e-4 * max(1.0, norm(start))


@pytest.mark.parametrize("name", smooth)
def test_gradients_do_not_leave_the_optimum_of_em(name):
    """L-BFGS started at EM's answer finds nothing better."""
    _, data, weights = make(name, "float64")
    fitted = converged(name)
    again = pml.fit(fitted.model, data, pml.LBFGS(), weights=weights, max_steps=20)
    np.testing.assert_allclose(again.final_objective, fitted.final_objective, rtol=1e-8)


@pytest.mark.parametrize("name", [n for n in smooth if n.endswith(("ml", "map", "bayes"))])
def test_lbfgs_reaches_what_em_reaches(name):
    model, data, weights = make(name, "float64")
    climbed = pml.fit(model, data, pml.LBFGS(), weights=weights, max_steps=500)
    assert climbed.final_objective > converged(name).final_objective - 1e-4 * abs(converged(name).final_objective)


@everywhere
@every_model
def test_vmapped_fits_are_separate_fits(name, dtype):
    model, data, weights = make(name, dtype)
    many = jnp.stack([weights, weights[::-1], jnp.ones_like(weights)])
    together = jax.jit(jax.vmap(lambda w: pml.fit(model, data, weights=w, max_steps=5, rtol=-1.0)))(many)
    alone = pml.fit(model, data, weights=many[1], max_steps=5, rtol=-1.0)
    np.testing.assert_allclose(together.objective[1], alone.objective, rtol=10 * TOL[dtype])


@every_model
def test_float32_agrees_with_float64(name):
    small, data32, w32 = make(name, "float32")
    large, data64, w64 = make(name, "float64")
    np.testing.assert_allclose(e_step(small, data32, w32)[1], e_step(large, data64, w64)[1], rtol=5e-6)


@pytest.mark.parametrize("name", [n for n in smooth if "mixture" in n])
def test_the_elbo_is_the_objective_at_the_posterior_and_lower_elsewhere(name):
    model, data, weights = make(name, "float64")
    shares, _ = model.responsibilities(data)
    objective = pml.objective(model, data, weights)
    np.testing.assert_allclose(model.elbo(data, weights, shares), objective, rtol=1e-10)
    other = jax.nn.softmax(jr.normal(jr.key(0), shares.shape), axis=0)
    gap = jnp.sum(weights * jnp.sum(other * (jnp.log(other) - jnp.log(shares)), axis=0))
    np.testing.assert_allclose(model.elbo(data, weights, other), objective - gap, rtol=1e-8)


@every_model
def test_a_second_fit_on_the_same_shapes_does_not_compile_again(name):
    from probml_jax._fit import _fit_compiled

    model, data, weights = make(name, "float64")
    pml.fit(model, data, weights=weights, max_steps=5)
    before = _fit_compiled._cached._cache_size()
    pml.fit(model, data, weights=2 * weights, max_steps=5, rtol=1e-5)
    assert _fit_compiled._cached._cache_size() == before

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

TOL = {"float32": 2e-5, "float64": 1e-10}
MAX_STEPS = 1500
# one member of each kind at every run, the others in `make thorough`
QUICK = """
    gaussian_mixture_full_ml gaussian_mixture_missing_full_map bernoulli_mixture_bayes mixture_of_mixtures gaussian_hmm
    kmeans factor_analysis_missing_map linear_dynamical_system bayes_net
""".split()


def marked(names, quick=QUICK):
    return [n if n in quick else pytest.param(n, marks=pytest.mark.thorough) for n in names]


every_model = pytest.mark.parametrize("name", marked(MODELS))
every_smooth_model = pytest.mark.parametrize("name", marked([name for name in MODELS if name != "kmeans"]))
# one of each kind, for the laws that take long to compile
REPRESENTATIVE = [
    "gaussian_mixture_diagonal_map",
    "gaussian_mixture_tied_map",
    "bernoulli_mixture_bayes",
    "gaussian_hmm",
]
# one of each way of centering statistics
CENTERED = """
    gaussian_mixture_full_ml gaussian_mixture_tied_map gaussian_mixture_missing_diagonal_bayes student_t_mixture_missing
    kmeans gaussian_hmm factor_analysis_missing_map linear_dynamical_system
""".split()
some_models = pytest.mark.parametrize("name", REPRESENTATIVE)
representatives_first = pytest.mark.parametrize(
    "name", marked([name for name in MODELS if name != "kmeans"], REPRESENTATIVE)
)


@functools.cache
def make(name, dtype):
    model, data = MODELS[name](jnp.dtype(dtype))
    n = jax.tree_util.tree_leaves(data)[0].shape[0]
    weights = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2.0, n), dtype)
    return model, data, weights


@functools.cache
def fitted(name, dtype):
    """EM run to the end of its resolution, with every step in the trace."""
    model, data, weights = make(name, dtype)
    return pml.fit(model, data, weights=weights, max_steps=MAX_STEPS, rtol={"float32": 1e-7, "float64": 1e-15}[dtype])


def close(a, b, dtype, scale=1.0):
    tol = TOL[dtype] * scale
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol * max(1.0, float(np.max(np.abs(y), initial=0))))


e_step = eqx.filter_jit(lambda model, data, weights: model.e_step(data, weights))
climb = eqx.filter_jit(slope)
take = lambda data, index: jax.tree_util.tree_map(lambda a: a[index], data)


@every_model
def test_the_e_step_bound_is_the_weighted_sum_of_log_probs(name):
    model, data, weights = make(name, "float64")
    _, bound = e_step(model, data, weights)
    scores = jax.jit(jax.vmap(model.log_prob))(data)
    np.testing.assert_allclose(bound, np.sum(np.asarray(weights) * np.asarray(scores)), rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])
@every_model
def test_every_step_of_em_climbs_and_keeps_type_and_dtype(name, dtype):
    model = make(name, dtype)[0]
    result = fitted(name, dtype)
    trace = np.asarray(result.objective)[: int(result.num_steps) + 1]
    noise = {"float32": 2e-5, "float64": 1e-11}[dtype] * np.abs(trace).max()  # rounding of a sum of this size
    assert trace.size > 1
    assert np.diff(trace).min() > -noise
    # four nested components on two clusters: one of them rightly loses its data
    fine = {pml.Status.max_steps, pml.Status.converged} | ({pml.Status.degenerate} if "of_mixtures" in name else set())
    assert int(result.status) in fine
    assert jax.tree_util.tree_structure(result.model) == jax.tree_util.tree_structure(model)
    for old, new in zip(jax.tree_util.tree_leaves(model), jax.tree_util.tree_leaves(result.model), strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape


@every_model
def test_the_trace_ends_at_the_objective_of_the_result(name):
    _, data, weights = make(name, "float64")
    result = fitted(name, "float64")
    objective = e_step(result.model, data, weights)[1] + result.model.log_prior()
    np.testing.assert_allclose(result.final_objective, objective, rtol=1e-10)


@some_models
def test_statistics_add_over_blocks_of_any_size(name):
    model, data, weights = make(name, "float64")
    blocks = jax.jit(lambda m, d, w: pooled_e_step(m, d, w, 17))(model, data, weights)
    close(blocks, e_step(model, data, weights), "float64", 20)


@every_model
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])
def test_statistics_do_not_depend_on_the_order_of_units(name, dtype):
    model, data, weights = make(name, dtype)
    order = np.random.default_rng(1).permutation(weights.size)
    close(e_step(model, take(data, order), weights[order]), e_step(model, data, weights), dtype, 20)


@every_model
def test_a_whole_weight_is_a_repetition(name):
    model, data, weights = make(name, "float64")
    n = weights.size
    drawn = np.random.default_rng(2).integers(0, n, n)
    counts = jnp.asarray(np.bincount(drawn, minlength=n), float)
    close(e_step(model, data, counts), e_step(model, take(data, drawn), jnp.ones(n)), "float64")


@pytest.mark.parametrize("name", [n if n in CENTERED else pytest.param(n, marks=pytest.mark.thorough) for n in MODELS])
def test_statistics_around_another_model_teach_the_same(name):
    """What keeps the past of online EM: recentered statistics lead to the model that they led to before."""
    model, data, weights = make(name, "float64")

    @eqx.filter_jit
    def compute(model, data, weights):
        stats, _ = model.e_step(data, weights)
        taught = model.m_step(stats)
        other = taught.m_step(taught.e_step(data, weights[::-1])[0])
        return taught, other.m_step(model.recenter(stats, other)), other

    taught, again, other = compute(model, data, weights)
    close(again, taught, "float64", 100)
    moved = [jnp.abs(a - b).max() for a, b in zip(*map(jax.tree_util.tree_leaves, (other, taught)), strict=True)]
    assert max(moved) > 1e-6


@every_model
def test_units_of_zero_weight_count_for_nothing(name):
    """Whatever stands in a row of padding."""
    model, data, weights = make(name, "float64")
    n = weights.size
    padded = weights.at[-9:].set(0.0)
    other = take(data, np.r_[np.arange(n - 9), np.zeros(9, int)])
    close(e_step(model, other, padded), e_step(model, data, padded), "float64")


@representatives_first
def test_fishers_identity(name):
    """The gradient of Q (and the prior) at its reference is the gradient of the objective."""
    model, data, weights = make(name, "float64")
    free, rebuild = split(model)
    q = lambda raw: rebuild(raw).surrogate(data, weights, model) + rebuild(raw).log_prior()
    close(jax.jit(jax.grad(q))(free), climb(model, data, weights), "float64", 100)


@every_smooth_model
def test_the_gradient_vanishes_where_em_stops(name):
    """EM and gradients climb the same line."""
    model, data, weights = make(name, "float64")
    norm = lambda tree: max(float(jnp.abs(leaf).max()) for leaf in jax.tree_util.tree_leaves(tree))
    start, end = norm(climb(model, data, weights)), norm(climb(fitted(name, "float64").model, data, weights))
    assert end < 1e-4 * max(1.0, start)


@some_models
def test_lbfgs_and_em_reach_the_same_optimum(name):
    model, data, weights = make(name, "float64")
    best = fitted(name, "float64").final_objective
    climbed = pml.fit(model, data, pml.LBFGS(), weights=weights, max_steps=500)
    again = pml.fit(fitted(name, "float64").model, data, pml.LBFGS(), weights=weights, max_steps=500)
    np.testing.assert_allclose(climbed.final_objective, best, rtol=1e-6)
    np.testing.assert_allclose(again.final_objective, best, rtol=1e-8)


@some_models
def test_vmapped_fits_are_separate_fits(name):
    model, data, weights = make(name, "float64")
    many = jnp.stack([weights, weights[::-1], jnp.ones_like(weights)])
    together = jax.jit(jax.vmap(lambda w: pml.fit(model, data, weights=w, max_steps=5, rtol=-1.0)))(many)
    alone = pml.fit(model, data, weights=many[1], max_steps=5, rtol=-1.0)
    np.testing.assert_allclose(together.objective[1], alone.objective, rtol=1e-9)


@every_model
def test_float32_agrees_with_float64(name):
    """The same model and data, narrowed: a float32 builder draws other seeds and would start elsewhere."""
    given = make(name, "float64")
    narrow = lambda a: a.astype("float32") if jnp.issubdtype(a.dtype, jnp.floating) else a
    small = jax.tree_util.tree_map(narrow, given)
    np.testing.assert_allclose(e_step(*small)[1], e_step(*given)[1], rtol=5e-6)


@pytest.mark.parametrize("name", [n for n in REPRESENTATIVE if "mixture" in n])
def test_the_elbo_is_the_objective_at_the_posterior_and_lower_elsewhere(name):
    model, data, weights = make(name, "float64")

    @jax.jit
    def compute():
        shares, _ = model.responsibilities(data)
        other = jax.nn.softmax(jr.normal(jr.key(0), shares.shape), axis=0)
        gap = jnp.sum(weights * jnp.sum(other * (jnp.log(other) - jnp.log(shares)), axis=0))
        bounds = model.elbo(data, weights, shares), model.elbo(data, weights, other)
        return pml.objective(model, data, weights), *bounds, gap

    objective, at_posterior, elsewhere, gap = compute()
    np.testing.assert_allclose(at_posterior, objective, rtol=1e-10)
    np.testing.assert_allclose(elsewhere, objective - gap, rtol=1e-8)
    assert gap > 0


@every_model
def test_a_second_fit_on_the_same_shapes_does_not_compile_again(name):
    from probml_jax._implicit import fit_compiled

    model, data, weights = make(name, "float64")
    pml.fit(model, data, weights=weights, max_steps=MAX_STEPS, rtol=1e-2)
    before = fit_compiled._cached._cache_size()
    pml.fit(model, data, weights=2 * weights, max_steps=MAX_STEPS, rtol=1e-3)
    assert fit_compiled._cached._cache_size() == before

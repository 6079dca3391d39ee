"""The laws of conjugate priors, over the registry and both precisions."""

import functools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import CONJUGATE
from jax.test_util import check_grads

from probml_jax._constraint import split

DTYPES = ["float32", "float64"]
RTOL = {"float32": 2e-4, "float64": 1e-9}
NUM_SAMPLES = 20_000

every = pytest.mark.parametrize("name", list(CONJUGATE))
both = pytest.mark.parametrize("dtype", DTYPES)

make = functools.cache(lambda name, dtype: CONJUGATE[name](dtype))


@eqx.filter_jit
def update(prior, xs, weights=None):
    return prior.update(xs, weights)


@eqx.filter_jit
def downdate(prior, xs):
    return prior.downdate(xs)


@eqx.filter_jit
def log_evidence(prior, xs, weights=None):
    return prior.log_evidence(xs, weights)


@functools.cache
def posterior_of(name, dtype="float64"):
    prior, _, xs = make(name, dtype)
    return update(prior, xs)


def rows(xs, index):
    return jax.tree_util.tree_map(lambda x: x[index], xs)


def flat(tree):
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0], np.float64)


def close(a, b, dtype, factor=1.0):
    a, b = flat(a), flat(b)
    np.testing.assert_allclose(a, b, rtol=factor * RTOL[dtype], atol=factor * RTOL[dtype] * max(1, np.abs(b).max()))


def within_monte_carlo(values, expected):
    """The mean of draws agrees with its expectation within five standard errors, which are small enough to tell."""
    values = np.asarray(values, np.float64)
    error = values.std(0) / np.sqrt(values.shape[0])
    assert np.all(np.isfinite(values))
    assert np.all(np.abs(values.mean(0) - expected) <= 5 * error + 1e-12), (values.mean(0), expected, error)


def moments(member):
    """The parameters whose posterior mean `mean()` promises: variances, not standard deviations."""
    if type(member).__name__ in ("Normal", "SphericalNormal"):
        return member.loc, member.scale**2
    return eqx.filter(member, eqx.is_array)


# ------------------------------------------------------------------------------------------ data in, data out


@every
@both
def test_all_at_once_is_one_by_one_in_any_order(name, dtype):
    prior, _, xs = make(name, dtype)
    n = jax.tree_util.tree_leaves(xs)[0].shape[0]
    together = posterior_of(name, dtype)
    for order in (np.arange(n), np.random.default_rng(0).permutation(n)):
        posterior = prior
        for i in order:
            posterior = update(posterior, rows(xs, slice(i, i + 1)))
        close(posterior, together, dtype)


@every
@both
def test_batches_stream(name, dtype):
    prior, _, xs = make(name, dtype)
    close(update(update(prior, rows(xs, slice(0, 2))), rows(xs, slice(2, 5))), posterior_of(name, dtype), dtype)


@every
@both
def test_downdate_inverts_update(name, dtype):
    prior, _, xs = make(name, dtype)
    close(downdate(posterior_of(name, dtype), xs), prior, dtype, factor=5)
    one = rows(xs, slice(1, 2))
    rest = rows(xs, np.array([0, 2, 3, 4]))
    close(downdate(posterior_of(name, dtype), one), update(prior, rest), dtype, factor=5)


@every
@both
def test_weights_are_repetitions(name, dtype):
    prior, _, xs = make(name, dtype)
    weights = jnp.array([2.0, 0.0, 1.0, 3.0, 1.0], dtype)
    repeated = rows(xs, np.array([0, 0, 2, 3, 3, 3, 4]))
    close(update(prior, xs, weights), update(prior, repeated), dtype)
    close(log_evidence(prior, xs, weights), log_evidence(prior, repeated), dtype)


@every
def test_no_data_change_nothing_and_gradients_stay_finite(name):
    prior, _, xs = make(name, "float64")
    around = prior.expected()[0]
    stats = jax.tree_util.tree_map(jnp.zeros_like, around.statistics(xs, jnp.ones(5)))
    close(prior.absorb(stats, around), prior, "float64")
    slope = eqx.filter_grad(lambda p: jnp.sum(jax.flatten_util.ravel_pytree(p.absorb(stats, around))[0]))(prior)
    assert np.all(np.isfinite(flat(slope)))
    slope = jax.grad(lambda s: jnp.sum(jax.flatten_util.ravel_pytree(prior.absorb(s, around))[0]))(stats)
    assert np.all(np.isfinite(flat(slope)))


@every
@both
def test_statistics_may_be_accumulated_by_any_member(name, dtype):
    prior, other, xs = make(name, dtype)
    around = other.expected()[0]
    stats = jax.jit(lambda a: a.statistics(xs, jnp.ones(5, dtype)))(around)
    close(prior.absorb(stats, around), posterior_of(name, dtype), dtype, factor=5)


# ------------------------------------------------------------------------------------------ evidence and predictive


@every
@both
def test_evidence_is_the_product_of_predictives(name, dtype):
    prior, _, xs = make(name, dtype)
    predict = eqx.filter_jit(lambda p, x: p.predictive().log_prob(x))
    posterior, total = prior, 0.0
    for i in range(5):
        total += float(predict(posterior, rows(xs, i)))
        posterior = update(posterior, rows(xs, slice(i, i + 1)))
    close(log_evidence(prior, xs), total, dtype, factor=3)


@every
def test_posterior_is_prior_times_likelihood(name):
    prior, _, xs = make(name, "float64")
    posterior = posterior_of(name)

    @jax.jit
    def gap(key):
        member = posterior.sample(key)
        likelihood = jnp.sum(jax.vmap(member.log_prob)(xs))
        return prior.log_prob(member) + likelihood - posterior.log_prob(member)

    gaps = [float(gap(key)) for key in jr.split(jr.key(0), 8)]
    np.testing.assert_allclose(gaps, float(log_evidence(prior, xs)), rtol=1e-9)


@every
def test_predictive_is_the_average_likelihood(name):
    _, _, xs = make(name, "float64")
    posterior = posterior_of(name)
    x = rows(xs, 1)
    score = jax.jit(jax.vmap(lambda key: posterior.sample(key).log_prob(x)))
    within_monte_carlo(np.exp(score(jr.split(jr.key(1), NUM_SAMPLES))), np.exp(posterior.predictive().log_prob(x)))


GRIDS = {  # a scalar parameter, its grid, and the member at a grid point
    "beta_bernoulli": np.linspace(0, 1, 20_001)[1:-1],
    "beta_binomial": np.linspace(0, 1, 20_001)[1:-1],
    "gamma_poisson": np.linspace(0, 60, 60_001)[1:],
    "gamma_exponential": np.linspace(0, 60, 60_001)[1:],
}


@pytest.mark.parametrize("name", list(GRIDS))
def test_evidence_and_expectations_are_quadratures(name):
    prior, other, xs = make(name, "float64")
    grid = jnp.asarray(GRIDS[name])
    template = prior.mean()
    field = "probs" if name.startswith("beta") else "rate"
    member = lambda theta: eqx.tree_at(lambda m: getattr(m, field), template, theta)
    log_prior = jax.vmap(lambda theta: prior.log_prob(member(theta)))(grid)
    likelihood = jax.vmap(lambda theta: jax.vmap(member(theta).log_prob)(xs))(grid)
    step = grid[1] - grid[0]
    integrate = lambda values: float(step * jnp.sum(values))
    np.testing.assert_allclose(integrate(jnp.exp(log_prior)), 1, rtol=1e-6)
    evidence = integrate(jnp.exp(log_prior + likelihood.sum(1)))
    np.testing.assert_allclose(float(log_evidence(prior, xs)), np.log(evidence), rtol=1e-6)
    np.testing.assert_allclose(float(prior.predictive().log_prob(xs[0])), np.log(integrate(jnp.exp(log_prior + likelihood[:, 0]))), rtol=1e-5)
    np.testing.assert_allclose(float(prior.expected_log_prob(xs[0])), integrate(jnp.exp(log_prior) * likelihood[:, 0]), rtol=1e-5)
    log_other = jax.vmap(lambda theta: other.log_prob(member(theta)))(grid)
    posterior = posterior_of(name)
    log_posterior = jax.vmap(lambda theta: posterior.log_prob(member(theta)))(grid)
    np.testing.assert_allclose(float(posterior.kl(other)), integrate(jnp.exp(log_posterior) * (log_posterior - log_other)), rtol=1e-6)


def test_evidence_of_a_normal_is_a_quadrature_in_two_dimensions():
    prior, _, xs = make("normal_inverse_chi_squared", "float64")
    mu, log_v = jnp.linspace(-15, 16, 1201), jnp.linspace(-5, 8, 601)
    member = lambda mu, log_v: eqx.tree_at(lambda m: (m.loc, m.scale), prior.mode(), (mu, jnp.exp(0.5 * log_v)))
    density = lambda mu, log_v: (lambda m: jnp.exp(prior.log_prob(m) + jnp.sum(jax.vmap(m.log_prob)(xs)) + log_v))(
        member(mu, log_v)
    )
    values = jax.jit(jax.vmap(jax.vmap(density, (None, 0)), (0, None)))(mu, log_v)
    evidence = jnp.sum(values) * (mu[1] - mu[0]) * (log_v[1] - log_v[0])
    np.testing.assert_allclose(float(prior.log_evidence(xs)), float(jnp.log(evidence)), rtol=1e-5)


# ------------------------------------------------------------------------------------------ expectations


@every
def test_expected_log_prob_is_the_average_score(name):
    _, _, xs = make(name, "float64")
    posterior = posterior_of(name)
    x = rows(xs, 2)
    score = jax.jit(jax.vmap(lambda key: posterior.sample(key).log_prob(x)))
    within_monte_carlo(score(jr.split(jr.key(2), NUM_SAMPLES)), posterior.expected_log_prob(x))


@every
def test_expected_member_and_constant_agree_with_the_score(name):
    """Differences of scores between events are those of the expected member; the constant is common to all."""
    _, _, xs = make(name, "float64")
    posterior = posterior_of(name)
    member, constant = posterior.expected()
    gaps = [float(posterior.expected_log_prob(rows(xs, i)) - member.log_prob(rows(xs, i))) for i in range(5)]
    if not name.startswith("matrix_normal"):  # a conditional family: there the gap depends on x
        np.testing.assert_allclose(gaps, float(jnp.sum(constant)), rtol=1e-9)
    assert max(gaps) <= 0  # Jensen's inequality


@every
@both
def test_kl_is_zero_at_itself_and_not_negative(name, dtype):
    prior, other, _ = make(name, dtype)
    kl = eqx.filter_jit(lambda q, p: q.kl(p))
    posterior = posterior_of(name, dtype)
    assert abs(float(kl(posterior, posterior))) < 20 * np.finfo(dtype).eps * 100
    for q, p in ((posterior, prior), (prior, posterior), (prior, other), (other, prior)):
        assert float(kl(q, p)) > 1e-4


@every
def test_kl_is_the_average_log_ratio(name):
    _, other, _ = make(name, "float64")
    posterior = posterior_of(name)
    ratio = lambda member: posterior.log_prob(member) - other.log_prob(member)
    ratios = jax.jit(jax.vmap(lambda key: ratio(posterior.sample(key))))
    within_monte_carlo(ratios(jr.split(jr.key(3), NUM_SAMPLES)), posterior.kl(other))


@every
def test_mode_is_the_highest_point(name):
    posterior = posterior_of(name)
    mode = posterior.mode()
    free, rebuild = split(mode)
    value, slope = jax.jit(jax.value_and_grad(lambda raw: posterior.log_prob(rebuild(raw))))(free)
    assert np.abs(flat(slope)).max() < 1e-8
    heights = jax.jit(jax.vmap(lambda key: posterior.log_prob(posterior.sample(key))))(jr.split(jr.key(4), 200))
    assert float(heights.max()) < float(value)


@every
def test_mean_is_the_average_member(name):
    posterior = posterior_of(name)
    draws = jax.jit(jax.vmap(lambda key: jax.flatten_util.ravel_pytree(moments(posterior.sample(key)))[0]))
    within_monte_carlo(draws(jr.split(jr.key(5), NUM_SAMPLES)), flat(moments(posterior.mean())))


# ------------------------------------------------------------------------------------------ transformations


@every
def test_compiled_and_batched_agree_with_one_at_a_time(name):
    prior, other, xs = make(name, "float64")
    stacked = jax.tree_util.tree_map(lambda a, b: jnp.stack([a, b]), prior, other)
    values = jax.jit(jax.vmap(lambda p: p.log_evidence(xs)))(stacked)
    np.testing.assert_allclose(values, [float(p.log_evidence(xs)) for p in (prior, other)], rtol=1e-10)
    halves = jax.tree_util.tree_map(lambda x: jnp.stack([x[:2], x[2:4]]), xs)
    batched = jax.vmap(prior.update)(halves)
    for i in range(2):
        close(rows(batched, i), update(prior, rows(halves, i)), "float64")


@every
@both
def test_results_keep_the_dtype(name, dtype):
    prior, other, xs = make(name, dtype)

    @eqx.filter_jit
    def everything(prior, xs):
        posterior = prior.update(xs)
        x = rows(xs, 0)
        members = (posterior.mode(), posterior.mean(), posterior.expected(), posterior.sample(jr.key(0)))
        scores = (posterior.kl(other), posterior.log_prob(members[0]), posterior.expected_log_prob(x))
        return posterior, members, scores, posterior.predictive().log_prob(x), prior.log_evidence(xs)

    for leaf in jax.tree_util.tree_leaves(jax.eval_shape(everything, prior, xs)):
        assert leaf.dtype == dtype


@every
def test_empirical_bayes_has_exact_gradients(name):
    prior, _, xs = make(name, "float64")
    free, rebuild = split(prior)
    evidence = jax.jit(lambda raw: rebuild(raw).log_evidence(xs))
    check_grads(evidence, (free,), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)
    slope = jax.grad(evidence)(free)
    climbed = jax.tree_util.tree_map(lambda f, g: f + 1e-3 * g, free, slope)
    assert float(evidence(climbed)) > float(evidence(free))


@every
def test_single_precision_agrees_with_double(name):
    single, double = make(name, "float32"), make(name, "float64")
    close(posterior_of(name, "float32"), posterior_of(name, "float64"), "float32", factor=0.1)
    close(log_evidence(single[0], single[2]), log_evidence(double[0], double[2]), "float32", factor=0.1)

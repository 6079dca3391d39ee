"""The laws of conjugate priors, over the registry and both precisions."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import CONJUGATE

from probml_jax import conjugate
from probml_jax._constraint import split

DTYPES = ["float32", "float64"]
RTOL = {"float32": 2e-4, "float64": 1e-9}
N = 5  # events in every entry of the registry

# one pair of each kind at every run, the others in `make thorough`
QUICK = "beta_bernoulli gamma_poisson normal_inverse_wishart matrix_normal_inverse_wishart_intercept".split()
marked = [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in CONJUGATE]
every = pytest.mark.parametrize("name", marked)
both = pytest.mark.parametrize("dtype", DTYPES)

make = functools.cache(lambda name, dtype: CONJUGATE[name](dtype))


class Learned(NamedTuple):
    """What changes with data."""

    posterior: Any
    downdated: Any
    evidence: Any


class Believed(NamedTuple):
    """What a prior says of events and of another prior."""

    predictive: Any
    expected: Any
    members: Any
    kl: Any


@eqx.filter_jit
def learn(prior, xs, weights):
    return Learned(prior.update(xs, weights), prior.downdate(xs, weights), prior.log_evidence(xs, weights))


@eqx.filter_jit
def believe(prior, other, xs):
    return Believed(
        predictive=jax.vmap(prior.predictive().log_prob)(xs),
        expected=jax.vmap(prior.expected_log_prob)(xs),
        members=(prior.mode(), prior.mean(), prior.expected(), prior.interior()),
        kl=prior.kl(other),
    )


def weighted(name, dtype, weights=(1, 1, 1, 1, 1), prior=None):
    own, _, xs = make(name, dtype)
    return learn(own if prior is None else prior, xs, jnp.asarray(weights, dtype))


whole = functools.cache(lambda name, dtype="float64": weighted(name, dtype))


@eqx.filter_jit
def kls(prior, other):
    return prior.kl(prior), prior.kl(other), other.kl(prior)


@functools.cache
def of_prior(name):
    return believe(*make(name, "float64"))


@functools.cache
def of_posterior(name):
    return believe(whole(name).posterior, *make(name, "float64")[1:])


def only(*indices):
    return [float(i in indices) for i in range(N)]


def rows(xs, index):
    return jax.tree_util.tree_map(lambda x: x[index], xs)


def flat(tree):
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0], np.float64)


def close(a, b, dtype, factor=1.0):
    a, b = flat(a), flat(b)
    np.testing.assert_allclose(a, b, rtol=factor * RTOL[dtype], atol=factor * RTOL[dtype] * max(1, np.abs(b).max()))


# ------------------------------------------------------------------------------------------ data in, data out


@every
@both
def test_all_at_once_is_one_by_one_in_any_order(name, dtype):
    together = whole(name, dtype).posterior
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
        posterior = None
        for i in order:
            posterior = weighted(name, dtype, only(i), posterior).posterior
        close(posterior, together, dtype)
    first = weighted(name, dtype, only(0, 3)).posterior
    close(weighted(name, dtype, only(1, 2, 4), first).posterior, together, dtype)


@every
@both
def test_downdate_inverts_update(name, dtype):
    together = whole(name, dtype).posterior
    close(weighted(name, dtype, prior=together).downdated, make(name, dtype)[0], dtype, factor=5)
    rest = weighted(name, dtype, only(0, 2, 3, 4)).posterior
    close(weighted(name, dtype, only(1), together).downdated, rest, dtype, factor=5)


@every
@both
def test_weights_are_repetitions(name, dtype):
    prior, _, xs = make(name, dtype)
    repeated = learn(prior, rows(xs, np.array([0, 0, 0, 2, 4])), jnp.ones(N, dtype))
    by_weight = weighted(name, dtype, [3, 0, 1, 0, 1])
    close((by_weight.posterior, by_weight.evidence), (repeated.posterior, repeated.evidence), dtype)


@every
def test_no_data_change_nothing_and_gradients_stay_finite(name):
    prior, _, xs = make(name, "float64")
    around = prior.expected()[0]
    stats = jax.tree_util.tree_map(lambda s: jnp.zeros(s.shape), jax.eval_shape(around.statistics, xs, jnp.ones(N)))
    ravel = lambda tree: jax.flatten_util.ravel_pytree(tree)[0]
    absorbed = lambda prior, stats: (lambda p: (jnp.sum(ravel(p)), p))(prior.absorb(stats, around))
    slopes, posterior = jax.jit(jax.grad(absorbed, argnums=(0, 1), has_aux=True))(prior, stats)
    close(posterior, prior, "float64")
    assert np.all(np.isfinite(flat(slopes)))


@every
def test_statistics_may_be_accumulated_by_any_member(name):
    prior, other, xs = make(name, "float64")
    around = other.expected()[0]
    absorbed = jax.jit(lambda xs: prior.absorb(around.statistics(xs, jnp.ones(N)), around))(xs)
    close(absorbed, whole(name).posterior, "float64")


# ------------------------------------------------------------------------------------------ evidence and predictive


@every
def test_evidence_is_the_product_of_predictives(name):
    prior, other, xs = make(name, "float64")
    posterior, total = prior, 0.0
    for i in range(N):
        total += float(believe(posterior, other, xs).predictive[i])
        posterior = weighted(name, "float64", only(i), posterior).posterior
    close(whole(name).evidence, total, "float64")


GRIDS = {  # the domain of a scalar parameter
    "beta_bernoulli": np.linspace(0, 1, 20_001)[1:-1],
    "beta_binomial": np.linspace(0, 1, 20_001)[1:-1],
    "gamma_poisson": np.linspace(0, 60, 60_001)[1:],
}


@pytest.mark.parametrize("name", list(GRIDS))
def test_evidence_and_expectations_are_quadratures(name):
    prior, other, xs = make(name, "float64")
    ours, scored = whole(name), of_prior(name)
    template = prior.mean()
    field = "probs" if name.startswith("beta") else "rate"

    @jax.jit
    @jax.vmap
    def scores(theta):
        member = eqx.tree_at(lambda m: getattr(m, field), template, theta)
        priors = [p.log_prob(member) for p in (prior, other, ours.posterior)]
        return jnp.stack(priors), jax.vmap(member.log_prob)(xs)

    grid = jnp.asarray(GRIDS[name])
    (log_prior, log_other, log_posterior), likelihood = scores(grid)[0].T, scores(grid)[1]
    integrate = lambda values: float((grid[1] - grid[0]) * jnp.sum(values))
    equal = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    equal(integrate(jnp.exp(log_prior)), 1)
    equal(ours.evidence, np.log(integrate(jnp.exp(log_prior + likelihood.sum(1)))))
    equal(scored.predictive[0], np.log(integrate(jnp.exp(log_prior + likelihood[:, 0]))))
    equal(scored.expected[0], integrate(jnp.exp(log_prior) * likelihood[:, 0]))
    equal(of_posterior(name).kl, integrate(jnp.exp(log_posterior) * (log_posterior - log_other)))


def test_evidence_of_a_normal_is_a_quadrature_in_two_dimensions():
    prior = conjugate.NormalInverseChiSquared(0.5, 0.8, 4.0, 1.3)
    xs = jnp.array([1.0, 0.5, 2.0, 1.4, -0.7])
    template = prior.mode()

    def density(mu, log_v):
        member = eqx.tree_at(lambda m: (m.loc, m.scale), template, (mu, jnp.exp(0.5 * log_v)))
        return jnp.exp(prior.log_prob(member) + jnp.sum(jax.vmap(member.log_prob)(xs)) + log_v)

    mu, log_v = jnp.linspace(-15, 16, 1201), jnp.linspace(-5, 8, 401)
    values = jax.jit(jax.vmap(jax.vmap(density, (None, 0)), (0, None)))(mu, log_v)
    evidence = jnp.sum(values) * (mu[1] - mu[0]) * (log_v[1] - log_v[0])
    np.testing.assert_allclose(float(prior.log_evidence(xs)), float(jnp.log(evidence)), rtol=1e-5)


# ------------------------------------------------------------------------------------------ draws from the posterior


class Draws(NamedTuple):
    height: Any  # log-density of the posterior
    ratio: Any  # posterior to another prior of the same form
    gap: Any  # prior times likelihood, to the posterior
    scores: Any  # of every event
    moments: Any


def moments(member):
    """The parameters whose posterior mean `mean()` promises: variances, not standard deviations."""
    if type(member).__name__ in ("Normal", "SphericalNormal"):
        return member.loc, member.scale**2
    if type(member).__name__ in ("LinearNormal", "LinearSphericalNormal"):
        return member.matrix, member.offset, member.scale**2
    return eqx.filter(member, eqx.is_array)


@functools.cache
def draws(name):
    prior, other, xs = make(name, "float64")
    posterior = whole(name).posterior

    @jax.jit
    @jax.vmap
    def draw(key):
        member = posterior.sample(key)
        height, scores = posterior.log_prob(member), jax.vmap(member.log_prob)(xs)
        gap = prior.log_prob(member) + jnp.sum(scores) - height
        return Draws(
            height, height - other.log_prob(member), gap, scores, jax.flatten_util.ravel_pytree(moments(member))[0]
        )

    return jax.tree_util.tree_map(np.asarray, draw(jr.split(jr.key(0), 6_000)))


def within_monte_carlo(values, expected):
    """The mean of draws agrees with its expectation within five standard errors."""
    error = values.std(0) / np.sqrt(values.shape[0])
    assert np.all(np.isfinite(values))
    difference = np.abs(values.mean(0) - np.asarray(expected))
    assert np.all(difference <= 5 * error + 1e-12), (values.mean(0), expected, error)


@every
def test_posterior_is_prior_times_likelihood(name):
    np.testing.assert_allclose(draws(name).gap, float(whole(name).evidence), rtol=1e-7)


@every
def test_predictive_is_the_average_likelihood(name):
    within_monte_carlo(np.exp(draws(name).scores), np.exp(of_posterior(name).predictive))


@every
def test_expected_log_prob_is_the_average_score(name):
    within_monte_carlo(draws(name).scores, of_posterior(name).expected)


@every
def test_expected_member_and_constant_agree_with_the_score(name):
    """Differences of scores between events are those of the expected member; the constant is common to all."""
    _, _, xs = make(name, "float64")
    member, constant = of_posterior(name).members[2]
    gaps = np.asarray(of_posterior(name).expected - jax.jit(jax.vmap(member.log_prob))(xs))
    if not name.startswith("matrix_normal"):  # a conditional family: there the gap depends on x
        draws = 3 if name == "dirichlet_multinomial" else 1  # there the constant is that of one draw
        np.testing.assert_allclose(gaps, draws * float(jnp.sum(constant)), rtol=1e-9)
    assert np.all(gaps < 0)  # Jensen's inequality


@every
@both
def test_kl_is_zero_at_itself_and_positive_elsewhere(name, dtype):
    prior, other, _ = make(name, dtype)
    itself, *others = map(float, kls(prior, other))
    assert abs(itself) < 100 * np.finfo(dtype).eps
    assert min(others) > 1e-3
    np.testing.assert_allclose(others, kls(*make(name, "float64")[:2])[1:], rtol=1e-4)


@every
def test_kl_and_entropy_are_averages(name):
    within_monte_carlo(draws(name).ratio, of_posterior(name).kl)
    alone = ("spherical_normal_inverse", "dirichlet_categorical", "matrix_normal_inverse_chi")
    if not name.startswith(alone):  # no one distribution behind these
        within_monte_carlo(-draws(name).height, jax.jit(lambda p: p.distribution.entropy())(whole(name).posterior))


@every
def test_mode_is_the_highest_point(name):
    posterior = whole(name).posterior
    free, rebuild = split(of_posterior(name).members[0])
    value, slope = jax.jit(jax.value_and_grad(lambda raw: posterior.log_prob(rebuild(raw))))(free)
    assert np.abs(flat(slope)).max() < 1e-8
    assert draws(name).height.max() < float(value)


@every
def test_mean_is_the_average_member(name):
    within_monte_carlo(draws(name).moments, flat(moments(of_posterior(name).members[1])))


# ------------------------------------------------------------------------------------------ transformations


@every
@both
def test_results_keep_the_dtype(name, dtype):
    prior, other, xs = make(name, dtype)
    weights = jnp.ones(N, dtype)
    everything = lambda: (learn(prior, xs, weights), believe(prior, other, xs), prior.sample(jr.key(0)))
    leaves = jax.tree_util.tree_leaves(jax.eval_shape(everything))
    assert {leaf.dtype.name for leaf in leaves} == {dtype}


@every
def test_empirical_bayes_has_exact_gradients(name):
    prior, _, xs = make(name, "float64")
    free, rebuild = split(prior)
    start, unravel = jax.flatten_util.ravel_pytree(free)
    evidence = jax.jit(jax.value_and_grad(lambda raw: rebuild(unravel(raw)).log_evidence(xs)))
    (value, slope), direction, step = evidence(start), jr.normal(jr.key(6), start.shape), 1e-5
    ahead, behind = evidence(start + step * direction)[0], evidence(start - step * direction)[0]
    np.testing.assert_allclose(float(value), float(whole(name).evidence), rtol=1e-10)
    np.testing.assert_allclose(slope @ direction, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)
    assert evidence(start + 1e-3 * slope)[0] > value


@every
def test_batches_of_priors_and_of_data_agree_with_one_at_a_time(name):
    prior, other, xs = make(name, "float64")
    stacked = jax.tree_util.tree_map(lambda a, b: jnp.stack([a, b]), prior, other)
    data = jax.tree_util.tree_map(lambda x: jnp.stack([x, x[np.array([0, 0, 2, 2, 4])]]), xs)
    batched = jax.jit(jax.vmap(lambda p, x: p.update(x)))(stacked, data)
    close(rows(batched, 0), whole(name).posterior, "float64")
    close(rows(batched, 1), learn(other, rows(data, 1), jnp.ones(N)).posterior, "float64")


@every
def test_single_precision_agrees_with_double(name):
    single, double = whole(name, "float32"), whole(name, "float64")
    close((single.posterior, single.evidence), (double.posterior, double.evidence), "float32", factor=0.2)

"""Laws every distribution obeys. A new family is one line in `helpers.py`."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import DISTRIBUTIONS, OTHERS, SUPPORTS

from probml_jax._constraint import constrain, split, unconstrain
from probml_jax._distribution import AbstractFamily
from probml_jax._exponential_family import AbstractExponentialFamily, bregman

F32, F64 = jnp.float32, jnp.float64
NAMES = sorted(DISTRIBUTIONS)
FAMILIES = [n for n in NAMES if isinstance(DISTRIBUTIONS[n](F64), AbstractFamily)]
EXPONENTIAL = [n for n in NAMES if isinstance(DISTRIBUTIONS[n](F64), AbstractExponentialFamily)]
EM_STEP = {"student_t", "multivariate_student_t"}  # `refit` is one M-step, not the maximizer
COORDINATES = [  # independent coordinates: a missing one is as good as absent
    *("bernoulli", "binomial", "poisson", "negative_binomial", "beta", "gamma", "inverse_gamma"),
    *("normal", "exponential", "student_t", "beta_binomial", "uniform"),
]


def both_dtypes(names):
    """Every name in both precisions; a variant of a family (scalar, one-dimensional) in float64 only."""
    cases = [(n, d) for n in names for d in (F32, F64) if d == F64 or not n.endswith(("_scalar", "_one"))]
    # float32 is compared with float64 at every run, below
    later = lambda n, d: pytest.mark.thorough if d == F32 or n in LATER or n.endswith(("_scalar", "_one")) else ()
    named = [pytest.param(n, d, id=f"{n}-{jnp.dtype(d).name}", marks=later(n, d)) for n, d in cases]
    return pytest.mark.parametrize(("name", "dtype"), named)


# every family is compared with SciPy at every run; the laws of these follow in `make thorough`
LATER = set(
    """binomial negative_binomial inverse_gamma exponential uniform dirichlet_multinomial beta_binomial
    multinomial""".split()
)
marked = lambda names: [pytest.param(n, marks=pytest.mark.thorough) if n in LATER else n for n in names]
each = pytest.mark.parametrize("name", marked(NAMES))
each_core = pytest.mark.parametrize("name", marked([n for n in NAMES if not n.endswith(("_scalar", "_one"))]))
each_family = pytest.mark.parametrize("name", marked([n for n in FAMILIES if not n.endswith(("_scalar", "_one"))]))
each_exponential = pytest.mark.parametrize("name", marked(EXPONENTIAL))


# compiled once per family, dtype and shape: tests share shapes (N events) to stay quick
N = 8
_sample = eqx.filter_jit(lambda d, keys: jax.vmap(d.sample)(keys))
log_probs = eqx.filter_jit(lambda d, xs: jax.vmap(d.log_prob)(xs))
log_prob = eqx.filter_jit(lambda d, x: d.log_prob(x))
mean_parameters = eqx.filter_jit(lambda d: d.mean_parameters())
statistics = eqx.filter_jit(lambda d, xs, weights: d.statistics(xs, weights))
refit = eqx.filter_jit(lambda d, stats: d.refit(stats))


@eqx.filter_jit
def climb(dist, xs, weights):
    """One refit; the weighted log-likelihood before it and its gradient in free coordinates."""
    free, rebuild = split(dist)
    value, gradient = jax.value_and_grad(lambda raw: weights @ jax.vmap(rebuild(raw).log_prob)(xs))(free)
    return dist.refit(dist.statistics(xs, weights)), value, gradient


def samples(dist, n=N, seed=0):
    return _sample(dist, jr.split(jr.key(seed), n))


def assert_trees_close(a, b, **kwargs):
    jax.tree_util.tree_map(lambda u, v: np.testing.assert_allclose(u, v, **kwargs), a, b)


@functools.cache
def expectations(name, dtype):
    """By enumeration or quadrature: mass, score, mean, variance, -E log p, E t(x)."""
    dist = DISTRIBUTIONS[name](dtype)
    points, log_w = SUPPORTS[name]
    points = points if name == "categorical" else jnp.asarray(points, dtype)
    free, rebuild = split(dist)

    @jax.jit
    def compute(points, log_w):
        log_p = jax.vmap(dist.log_prob)(points)
        mass = jnp.where(jnp.isfinite(log_p), jnp.exp(log_p + log_w), 0)  # float32 rounds tiny points to an edge
        score = jax.grad(lambda raw: jnp.sum(mass * jax.vmap(rebuild(raw).log_prob)(points), where=mass > 0))(free)
        spread = jnp.sum(mass * jnp.where(mass > 0, -log_p, 0))
        mean = jnp.tensordot(mass, points.astype(dtype), 1)
        second = jnp.tensordot(mass, (points - mean[None]) ** 2, 1)
        stats = None
        if isinstance(dist, AbstractExponentialFamily):
            values = jax.vmap(dist.suffstats)(points)
            select = lambda t: jnp.where(mass.reshape((-1,) + (1,) * (t.ndim - 1)) > 0, t, 0)
            stats = jax.tree_util.tree_map(lambda t: jnp.tensordot(mass, select(t), 1), values)
        return (
            jnp.sum(mass),
            score,
            mean,
            second,
            spread,
            stats,
            jnp.max(jnp.where(jnp.isfinite(log_p), log_p, -jnp.inf)),
        )

    return compute(points, jnp.asarray(log_w, dtype))


def tolerance(dtype):
    return {"rtol": 2e-4, "atol": 2e-4} if dtype == F32 else {"rtol": 1e-8, "atol": 1e-8}


@both_dtypes(NAMES)
def test_total_mass_is_one(name, dtype):
    np.testing.assert_allclose(expectations(name, dtype)[0], 1, **tolerance(dtype))


@both_dtypes(NAMES)
def test_score_has_mean_zero(name, dtype):
    for leaf in jax.tree_util.tree_leaves(expectations(name, dtype)[1]):
        np.testing.assert_allclose(leaf, 0, atol=3e-3 if dtype == F32 else 1e-7)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "categorical"])
def test_mean_and_variance(name):
    dist = DISTRIBUTIONS[name](F64)
    _, _, mean, variance, *_ = expectations(name, F64)
    np.testing.assert_allclose(dist.mean(), mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(dist.variance(), variance, rtol=1e-7)


@both_dtypes([*EXPONENTIAL, "student_t", "multivariate_student_t", "uniform"])
def test_entropy(name, dtype):
    entropy = eqx.filter_jit(lambda d: d.entropy())(DISTRIBUTIONS[name](dtype))
    np.testing.assert_allclose(entropy, expectations(name, dtype)[4], **tolerance(dtype))


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("categorical", "dirichlet", "beta", "gamma")])
def test_mode_is_the_highest_point(name):
    dist = DISTRIBUTIONS[name](F64)
    assert float(log_prob(dist, dist.mode())) >= float(expectations(name, F64)[6]) - 1e-12


@pytest.mark.parametrize("name", [n for n in NAMES if n != "categorical"])
def test_sample_moments(name):
    dtype = F32
    dist = DISTRIBUTIONS[name](dtype)
    n = 4000
    xs = samples(dist, n)
    assert xs.dtype == dtype
    xs = np.asarray(xs, float)
    mean, variance = np.asarray(dist.mean(), float), np.asarray(dist.variance(), float)
    assert np.all(np.abs(xs.mean(0) - mean) <= 5 * np.sqrt(variance / n))
    squared = (xs - mean) ** 2
    assert np.all(np.abs(squared.mean(0) - variance) <= 6 * squared.std(0) / np.sqrt(n) + 1e-6)


def test_categorical_samples():
    dist = DISTRIBUTIONS["categorical"](F32)
    freq = np.bincount(np.asarray(samples(dist, 4000)), minlength=3) / 4000
    assert np.all(np.abs(freq - np.asarray(dist.probs)) < 5 * np.sqrt(0.25 / 4000))


@each_core
def test_jit_vmap_and_loop_agree_and_float32_follows_float64(name):
    dist = DISTRIBUTIONS[name](F32)
    xs = samples(dist, seed=1)
    looped = jnp.stack([log_prob(dist, x) for x in xs])
    assert looped.dtype == F32
    # k members at once: what a mixture does
    stack = jax.tree_util.tree_map(lambda a: jnp.stack([a, a]), dist)
    table = eqx.filter_jit(lambda k, xs: jax.vmap(lambda x: jax.vmap(lambda d: d.log_prob(x))(k))(xs))(stack, xs)
    np.testing.assert_allclose(table, jnp.stack([looped, looped], axis=1), rtol=2e-5, atol=2e-5)
    wide = log_probs(DISTRIBUTIONS[name](F64), xs if name == "categorical" else xs.astype(F64))
    # a point of the simplex is rounded before it is scored
    np.testing.assert_allclose(looped, wide, rtol=1e-5, atol=3e-5 if name != "dirichlet" else 1e-3)


@both_dtypes(NAMES)
def test_dtype_is_kept(name, dtype):
    dist = DISTRIBUTIONS[name](dtype)
    leaves = jax.tree_util.tree_leaves(eqx.filter(dist, eqx.is_inexact_array))
    assert all(leaf.dtype == dtype and not leaf.weak_type for leaf in leaves)
    x = jax.eval_shape(dist.sample, jr.key(0))
    assert x.dtype == dtype or name == "categorical"
    assert jax.eval_shape(dist.log_prob, x).dtype == dtype
    for summary in ("mean", "mode", "variance", "covariance", "entropy"):
        method = getattr(dist, summary, None)
        if callable(method) and name != "categorical":
            assert jax.eval_shape(method).dtype == dtype, summary
    if name in OTHERS and name in EXPONENTIAL:
        assert jax.eval_shape(lambda: dist.kl(OTHERS[name](dtype))).dtype == dtype
    if name in FAMILIES:
        xs = jax.ShapeDtypeStruct((N, *x.shape), x.dtype)
        stats = jax.eval_shape(dist.statistics, xs, jax.ShapeDtypeStruct((N,), dtype))
        new = jax.eval_shape(dist.refit, stats)
        assert all(leaf.dtype == dtype for leaf in jax.tree_util.tree_leaves((stats, new)))


@each_core
def test_gradients_are_finite_also_where_impossible_or_missing(name):
    dist = DISTRIBUTIONS[name](F32)
    x = samples(dist, seed=3)[0]
    if name == "categorical":
        events = jnp.array([x, -1, 99])
    else:
        events = jnp.stack([x, jnp.full_like(x, jnp.nan), jnp.full_like(x, -1.5), jnp.zeros_like(x), jnp.ones_like(x)])
        if x.size > 1:
            events = jnp.concatenate([events, x.at[0].set(jnp.nan)[None]])
    free, rebuild = split(dist)

    @jax.jit
    @jax.vmap
    def both(x):
        by_event = jnp.zeros(()) if name == "categorical" else jax.grad(dist.log_prob)(x)
        return dist.log_prob(x), jax.grad(lambda raw: rebuild(raw).log_prob(x))(free), by_event

    values, by_parameter, by_event = both(events)
    assert not np.any(np.isnan(values))
    np.testing.assert_allclose(values[1], 0, atol=1e-5)
    for leaf in jax.tree_util.tree_leaves((by_parameter, by_event)):
        assert np.all(np.isfinite(leaf))


@each
def test_pytree_and_constraint_round_trip(name):
    dist = DISTRIBUTIONS[name](F64)
    leaves, structure = jax.tree_util.tree_flatten(dist)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert type(again) is type(dist)
    assert eqx.tree_equal(again, dist)
    assert_trees_close(constrain(unconstrain(dist)), dist, rtol=1e-12, atol=1e-14)
    free, rebuild = split(dist)
    assert_trees_close(rebuild(free), dist, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", COORDINATES)
def test_missing_coordinate_is_absent(name):
    dist = DISTRIBUTIONS[name](F64)
    first = jax.tree_util.tree_map(lambda a: a[:1], dist)
    x = samples(dist, seed=4)[0]
    np.testing.assert_allclose(log_prob(dist, x.at[1].set(jnp.nan)), log_prob(first, x[:1]), rtol=1e-12)


@pytest.mark.parametrize("name", ["multinomial", "dirichlet_multinomial"])
def test_missing_count_is_summed_out(name):
    dist = DISTRIBUTIONS[name](F64)
    points = np.asarray(SUPPORTS[name][0])
    mass = np.exp(log_probs(dist, jnp.asarray(points)))
    np.testing.assert_allclose(
        jnp.exp(log_prob(dist, jnp.array([2.0, jnp.nan, jnp.nan]))), mass[points[:, 0] == 2].sum(), rtol=1e-12
    )
    one = jnp.exp(log_prob(dist, jnp.array([2.0, 1.0, jnp.nan])))
    np.testing.assert_allclose(one, mass[(points[:, 0] == 2) & (points[:, 1] == 1)].sum(), rtol=1e-12)


# ---------------------------------------------------------------- exponential families


@both_dtypes(EXPONENTIAL)
def test_gradient_of_log_normalizer_is_mean_of_suffstats(name, dtype):
    dist = DISTRIBUTIONS[name](dtype)
    assert_trees_close(mean_parameters(dist), expectations(name, dtype)[5], **tolerance(dtype))


@both_dtypes(EXPONENTIAL)
def test_natural_and_mean_parameters_invert(name, dtype):
    dist = DISTRIBUTIONS[name](dtype)
    loose = {"rtol": 2e-3, "atol": 1e-5} if dtype == F32 else {"rtol": 1e-10, "atol": 1e-12}
    there_and_back = eqx.filter_jit(lambda d: type(d).from_natural(d.natural(), **d.known()))
    assert_trees_close(there_and_back(dist), dist, **loose)
    again = eqx.filter_jit(lambda d: type(d).from_mean_parameters(d.mean_parameters(), **d.known()))(dist)
    assert_trees_close(again, dist, **loose)
    assert all(leaf.dtype == dtype for leaf in jax.tree_util.tree_leaves(again))


@each_exponential
def test_log_prob_is_the_exponential_form(name):
    dist = DISTRIBUTIONS[name](F64)
    xs = samples(dist, seed=5)

    def form(x):
        dots = jax.tree_util.tree_map(lambda a, b: jnp.sum(a * b), dist.natural(), dist.suffstats(x))
        return dist.log_base_measure(x) + sum(jax.tree_util.tree_leaves(dots)) - dist.log_normalizer()

    np.testing.assert_allclose(jax.jit(jax.vmap(form))(xs), log_probs(dist, xs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(OTHERS) & set(EXPONENTIAL)))
def test_kl_is_bregman_and_nonnegative(name):
    q, p = DISTRIBUTIONS[name](F64), OTHERS[name](F64)
    divergence = q.kl(p)
    np.testing.assert_allclose(divergence, jax.jit(bregman)(q, p), rtol=1e-9)
    np.testing.assert_allclose(q.kl(q), 0, atol=1e-12)
    np.testing.assert_allclose(DISTRIBUTIONS[name](F32).kl(OTHERS[name](F32)), divergence, rtol=1e-5)
    points, log_w = SUPPORTS[name]
    points = jnp.asarray(points)
    log_q, log_p = log_probs(q, points), log_probs(p, points)
    mass = jnp.where(log_q > -jnp.inf, jnp.exp(log_q + log_w), 0)
    cross = -jnp.sum(jnp.where(mass > 0, mass * jnp.where(mass > 0, log_p, 0), 0))
    np.testing.assert_allclose(q.cross_entropy(p), cross, rtol=1e-7)


# ---------------------------------------------------------------- families: statistics and refit


@each_family
def test_statistics_add_and_weights_repeat(name):
    dist = DISTRIBUTIONS[name](F64)
    xs = samples(dist, seed=6)
    whole = statistics(dist, xs, jnp.ones(N))
    halves = [statistics(dist, xs, jnp.asarray(w, F64)) for w in (np.arange(N) % 2 == 0, np.arange(N) % 2 == 1)]
    assert_trees_close(jax.tree_util.tree_map(jnp.add, *halves), whole, rtol=1e-11, atol=1e-11)
    # weights repeat: three of one, one of another, none of the rest
    weighted = statistics(dist, xs, jnp.array([3.0, 0, 0, 5.0, 0, 0, 0, 0]))
    repeated = statistics(dist, xs[jnp.array([0, 3, 0, 3, 0, 3, 3, 3])], jnp.ones(N))
    assert_trees_close(weighted, repeated, rtol=1e-11, atol=1e-11)
    dist.validate(xs)


@pytest.mark.parametrize("name", [n for n in COORDINATES if n in FAMILIES])
def test_statistics_drop_missing_coordinates(name):
    dist = DISTRIBUTIONS[name](F64)
    xs = samples(dist, seed=6)
    gaps = statistics(dist, xs.at[:2, 1].set(jnp.nan), jnp.ones(N))
    full = statistics(dist, xs, jnp.ones(N))
    late = statistics(dist, xs, jnp.ones(N).at[:2].set(0))
    wanted = jax.tree_util.tree_map(lambda a, b: jnp.stack([a[0], b[1]]), full, late)
    assert_trees_close(gaps, wanted, rtol=1e-12)


@each_family
def test_refit_without_weight_keeps_the_member(name):
    dist = DISTRIBUTIONS[name](F64)
    assert eqx.tree_equal(refit(dist, statistics(dist, samples(dist, seed=6), jnp.zeros(N))), dist)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@each_family
def test_refit_maximizes_the_likelihood(name, missing):
    """At the fixed point of refit the gradient of the weighted log-likelihood vanishes in every free direction."""
    dist = DISTRIBUTIONS[name](F64)
    xs = samples(OTHERS[name](F64) if name in EM_STEP else dist, 40, seed=11 if name in EM_STEP else 7)
    weights = jr.uniform(jr.key(8), (40,), F64, 0.5, 2.0)
    if missing and name == "categorical":
        xs = xs.at[:5].set(-1)
    elif missing:
        xs = xs.reshape(40, -1).at[:5, 0].set(jnp.nan).reshape(xs.shape)
    start = OTHERS[name](F64) if name in OTHERS else dist
    iterative = name in EM_STEP or (missing and name in ("multivariate_normal", "dirichlet", "multinomial"))
    trace = []
    for _ in range(300 if iterative else 3):
        start, value, gradient = climb(start, xs, weights)
        trace.append(float(value))
    assert np.all(np.diff(trace) >= -1e-9 * abs(trace[-1]))
    for leaf in jax.tree_util.tree_leaves(gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-5 if name in EM_STEP else 1e-7)


@pytest.mark.parametrize("name", ["normal", "spherical_normal", "multivariate_normal"])
def test_float32_statistics_survive_a_large_mean(name):
    xs = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32) + np.float32(5000)
    dist = DISTRIBUTIONS[name](F32)
    dist = eqx.tree_at(lambda d: d.loc, dist, jnp.full(2, 5000.5, F32))
    new = dist.refit(statistics(dist, jnp.asarray(xs), jnp.ones(2000, F32)))
    wanted = xs.astype(float).var(0)
    wanted = np.full(2, wanted.mean()) if name == "spherical_normal" else wanted
    np.testing.assert_allclose(new.variance(), wanted, rtol=1e-4)
    np.testing.assert_allclose(new.mean(), xs.astype(float).mean(0), rtol=3e-7)

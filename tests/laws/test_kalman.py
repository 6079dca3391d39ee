"""Laws of the Kalman engine: everything against the dense joint Gaussian of all states and observations."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads

from probml_jax.inference import kalman

FORMS = {"joseph": {}, "square_root": {"form": "square_root"}, "parallel": {"parallel": True}}
every_form = pytest.mark.parametrize("form", list(FORMS))
# an associative scan over thousands of steps compiles for a quarter of a minute
slow_parallel = [pytest.param(f, marks=pytest.mark.thorough) if f == "parallel" else f for f in FORMS]


def _covariance(rng, size):
    a = rng.normal(size=(size, size))
    return a @ a.T / size + 0.3 * np.eye(size)


# name -> states, features, steps, varying, correlated noise
SIZES = {
    "constant": (3, 2, 5, False, True),
    "independent": (3, 2, 5, False, False),
    "varying": (2, 3, 5, True, True),
    "one_step": (2, 1, 1, False, True),
    "large_state": (10, 2, 4, False, True),
    "condensed": (2, 11, 4, False, True),
    "large": (9, 9, 3, False, False),
    "singular": (3, 2, 5, False, False),
}
SLOW = ("large_state", "condensed", "large", "independent")
SLOW_GRADIENTS = (*SLOW, "varying", "one_step")
marked = lambda slow: [pytest.param(n, marks=pytest.mark.thorough) if n in slow else n for n in SIZES]
every_case = pytest.mark.parametrize("name", marked(SLOW))


@functools.cache
def make(name):
    p, d, t, varying, correlated = SIZES[name]
    rng = np.random.default_rng(len(name))
    many = lambda draw, n: jnp.asarray(np.stack([draw() for _ in range(n)]) if varying else draw())
    noise = many(lambda: _covariance(rng, d), t) if correlated else jnp.asarray(rng.uniform(0.3, 1.0, d))
    moves = many(lambda: 0.3 * _covariance(rng, p), t - 1)
    if name == "singular":  # a state without noise, and one feature measured exactly
        moves, noise = moves.at[2].set(0).at[:, 2].set(0), noise.at[0].set(0)
    system = kalman.System(
        jnp.asarray(rng.normal(size=p)),
        jnp.asarray(_covariance(rng, p)),
        many(lambda: 0.8 * np.linalg.qr(rng.normal(size=(p, p)))[0], t - 1),
        moves,
        many(lambda: rng.normal(size=(d, p)), t),
        noise,
        many(lambda: rng.normal(size=p), t - 1),
        many(lambda: rng.normal(size=d), t),
    )
    y = rng.normal(size=(t, d))
    if t > 1:
        y[1] = np.nan
        y[2, 0] = np.nan
    return system, jnp.asarray(y)


def joint(system, t):
    """Mean and covariance of all states, and the map to all observations: matrix, offset, noise."""
    p, d = system.num_latents, system.num_features
    at = lambda a, i, rank: np.asarray(a[i] if a.ndim > rank else a)
    means, cov = [np.asarray(system.initial_mean)], np.zeros((t * p, t * p))
    cov[:p, :p] = system.initial_covariance
    for i in range(t - 1):
        a, b, q = at(system.dynamics, i, 2), at(system.dynamics_offset, i, 1), at(system.dynamics_noise, i, 2)
        means.append(a @ means[-1] + b)
        new, old, past = slice((i + 1) * p, (i + 2) * p), slice(i * p, (i + 1) * p), slice(0, (i + 1) * p)
        cov[new, past] = a @ cov[old, past]
        cov[past, new] = cov[new, past].T
        cov[new, new] = a @ cov[old, old] @ a.T + q
    rows, noise, offsets = np.zeros((t * d, t * p)), np.zeros((t * d, t * d)), []
    for i in range(t):
        block = slice(i * d, (i + 1) * d)
        rows[block, i * p : (i + 1) * p] = at(system.emission, i, 2)
        own = system.emission_noise
        noise[block, block] = np.diag(own) if own.ndim == 1 else at(own, i, 2)
        offsets.append(at(system.emission_offset, i, 1))
    return np.concatenate(means), cov, rows, np.concatenate(offsets), noise


def posterior(system, y):
    """Mean and covariance of all states given what is seen, and its log density."""
    mean, cov, rows, offset, noise = joint(system, len(y))
    flat = np.ravel(y)
    seen = ~np.isnan(flat)
    spread = (rows @ cov @ rows.T + noise)[np.ix_(seen, seen)]
    error, cross = (flat - rows @ mean - offset)[seen], (cov @ rows.T)[:, seen]
    gain = np.linalg.solve(spread, cross.T).T
    size = np.linalg.slogdet(spread)[1] + seen.sum() * np.log(2 * np.pi)
    return mean + gain @ error, cov - gain @ cross.T, -0.5 * (error @ np.linalg.solve(spread, error) + size)


@every_case
@every_form
def test_filter_and_smoother_are_the_dense_posterior(name, form):
    system, y = make(name)
    p, t = system.num_latents, len(y)
    smoothed, filtered = kalman.smooth(system, y, **FORMS[form]), kalman.filter(system, y, **FORMS[form])
    mean, cov, value = posterior(system, np.asarray(y))
    block = lambda i, j: cov[i * p : (i + 1) * p, j * p : (j + 1) * p]
    np.testing.assert_allclose(smoothed.log_likelihood, value, rtol=1e-9)
    np.testing.assert_allclose(filtered.log_likelihood, value, rtol=1e-9)
    np.testing.assert_allclose(np.ravel(smoothed.mean), mean, atol=1e-9)
    np.testing.assert_allclose(smoothed.covariance, [block(i, i) for i in range(t)], atol=1e-9)
    if t > 1:
        np.testing.assert_allclose(smoothed.cross, [block(i + 1, i) for i in range(t - 1)], atol=1e-9)
    half = t // 2
    mean, cov, _ = posterior(system, np.where(np.arange(t)[:, None] <= half, y, np.nan))
    np.testing.assert_allclose(filtered.mean[half], mean[half * p : (half + 1) * p], atol=1e-9)
    np.testing.assert_allclose(filtered.covariance[half], block(half, half), atol=1e-9)


@pytest.mark.parametrize("name", marked(SLOW_GRADIENTS))
def test_the_gradient_is_that_of_the_dense_likelihood(name):
    """The smoother's gradient against automatic differentiation of the filter, which the dense posterior checks."""
    system, y = make(name)
    found = jax.grad(kalman.log_likelihood, argnums=(0, 1))(system, y)
    plain = jax.grad(lambda s, y: kalman.filter(s, y).log_likelihood, argnums=(0, 1))(system, y)
    for field, a, b in zip((*system._fields, "y"), (*found[0], found[1]), (*plain[0], plain[1]), strict=True):
        if a is not None:
            # only the symmetric part of the gradient by a covariance means anything
            symmetric = field in ("initial_covariance", "dynamics_noise") or (field == "emission_noise" and a.ndim > 1)
            fold = lambda x, symmetric=symmetric: x + jnp.swapaxes(x, -1, -2) if symmetric else x
            np.testing.assert_allclose(fold(a), fold(b), atol=1e-8 * (1 + float(jnp.abs(b).max())))
            assert jnp.all(jnp.isfinite(a))


def test_directional_derivatives():
    system, y = make("constant")
    check_grads(lambda a: kalman.log_likelihood(system._replace(dynamics=a), y), (system.dynamics,), 1)


@pytest.mark.thorough
def test_second_derivatives():
    system, y = make("constant")
    score = lambda a, f: f(system._replace(dynamics=a))
    curve = lambda f: jax.hessian(lambda a: score(a, f))(system.dynamics)
    plain = curve(lambda s: kalman.filter(s, y).log_likelihood)
    np.testing.assert_allclose(curve(lambda s: kalman.log_likelihood(s, y)), plain, atol=1e-8)


@every_form
@pytest.mark.parametrize("name", [pytest.param("constant", marks=pytest.mark.thorough), "varying"])
def test_padding_changes_nothing(name, form):
    system, y = make(name)
    t = len(y)
    grow = lambda a, rank: jnp.concatenate([a, a[-1:], a[-1:]]) if a is not None and a.ndim > rank else a
    ranks = (1, 2, 2, 2, 2, 2, 1, 1, 1)
    longer = kalman.System(*[grow(a, rank) for a, rank in zip(system, ranks, strict=True)])
    padded = jnp.concatenate([y, jnp.full((2, y.shape[1]), 1e3)])
    mask = jnp.arange(t + 2) < t
    short, long = kalman.smooth(system, y, **FORMS[form]), kalman.smooth(longer, padded, mask, **FORMS[form])
    for a, b in zip(long, short, strict=True):
        np.testing.assert_allclose(a[: len(b)] if b.ndim else a, b, atol=1e-12, rtol=1e-12)
    slope = jax.grad(lambda s: kalman.log_likelihood(s, padded, mask))(longer)
    want = jax.grad(lambda s: kalman.log_likelihood(s, y))(system)
    for a, b in zip(slope, want, strict=True):
        if b is not None:
            np.testing.assert_allclose(a[: len(b)], b, atol=1e-10)


@pytest.mark.thorough
def test_long_series_run_in_blocks():
    """Recursions over many steps are cut into blocks (here with an end that needs padding); factors are not."""
    system, _ = make("constant")
    y = np.random.default_rng(5).normal(size=(131, 2))
    y[[3, 40, 41]] = np.nan
    y[60, 0] = np.nan
    y, mask = jnp.asarray(y), jnp.arange(131) < 120
    for given in (None, mask):
        blocks, plain = kalman.smooth(system, y, given), kalman.smooth(system, y, given, form="square_root")
        for a, b in zip(blocks, plain, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)
    mean, _, _ = posterior(system, np.asarray(y))
    np.testing.assert_allclose(np.ravel(kalman.smooth(system, y).mean), mean, atol=1e-9)
    value = lambda a: kalman.log_likelihood(system._replace(dynamics=a * system.dynamics), y)
    check_grads(value, (1.0,), 1)


@pytest.mark.parametrize("parallel", [False, True])
def test_posterior_paths_have_the_posterior_moments(parallel):
    system, y = make("constant")
    keys = jr.split(jr.key(0), 20_000)
    draws = jax.jit(jax.vmap(lambda key: kalman.sample(key, system, y, parallel=parallel)))(keys).reshape(len(keys), -1)
    mean, cov, _ = posterior(system, np.asarray(y))
    error = 6 / np.sqrt(len(keys))  # six standard errors
    np.testing.assert_allclose(draws.mean(0), mean, atol=error * np.sqrt(np.diag(cov)).max())
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=2 * error * np.diag(cov).max())


def test_simulated_series_have_the_prior_moments():
    system, y = make("varying")
    keys = jr.split(jr.key(1), 20_000)
    states, ys = jax.jit(jax.vmap(lambda key: kalman.simulate(key, system, len(y))))(keys)
    mean, cov, rows, offset, noise = joint(system, len(y))
    total = rows @ cov @ rows.T + noise
    error = 6 / np.sqrt(len(keys))
    np.testing.assert_allclose(states.reshape(len(keys), -1).mean(0), mean, atol=error * np.sqrt(np.diag(cov).max()))
    ys = ys.reshape(len(keys), -1)
    np.testing.assert_allclose(ys.mean(0), rows @ mean + offset, atol=error * np.sqrt(np.diag(total).max()))
    np.testing.assert_allclose(np.cov(ys.T), total, atol=2 * error * np.diag(total).max())


def test_online_steps_are_the_filter_and_prediction_is_a_filter_without_observations():
    system, y = make("constant")
    belief, total = None, 0.0
    for row in y:
        belief, gain = kalman.step(system, belief, row)
        total += gain
    filtered = kalman.filter(system, y)
    np.testing.assert_allclose(total, filtered.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(belief[0], filtered.mean[-1], atol=1e-12)
    longer = kalman.filter(system, jnp.concatenate([y, jnp.full((3, 2), jnp.nan)]))
    means, covariances = kalman.predict(system, *belief, 3)
    np.testing.assert_allclose(means, longer.mean[len(y) :], atol=1e-12)  # the first is one step after the last
    np.testing.assert_allclose(covariances, longer.covariance[len(y) :], atol=1e-12)


# ------------------------------------------------------------------ diffuse starts


def _trend(dtype, size=None):
    array = lambda a: jnp.asarray(a, dtype)
    unknown = jnp.ones(2, bool) if size is None else None
    start = array(np.eye(2) * (1.0 if size is None else size))
    move, noise = array([[1.0, 1.0], [0.0, 1.0]]), array(np.diag([0.1, 0.01]))
    return kalman.System(array([0.0, 0.0]), start, move, noise, array([[1.0, 0.0]]), array([1.0]), diffuse=unknown)


def _series(dtype):
    rng = np.random.default_rng(0)
    y = 100 + np.cumsum(0.3 + 0.1 * np.cumsum(rng.normal(size=40))) + rng.normal(size=40)
    y[1:3] = np.nan
    return jnp.asarray(y, dtype)[:, None]


@pytest.mark.parametrize("form", slow_parallel)
def test_a_diffuse_start_is_the_limit_of_a_wide_one(form):
    y = _series("float64")
    exact, wide = (kalman.smooth(_trend("float64", size), y, **FORMS[form]) for size in (None, 1e8))
    for a, b in zip(exact[:3], wide[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # a start of variance 1e8 is off by about 1e-5 itself
    limit = wide.log_likelihood + 2 * 0.5 * np.log(1e8)
    np.testing.assert_allclose(exact.log_likelihood, limit, atol=1e-4)
    filtered, wide = kalman.filter(_trend("float64"), y, **FORMS[form]), kalman.filter(_trend("float64", 1e8), y)
    np.testing.assert_allclose(filtered.mean[3:], wide.mean[3:], rtol=1e-4)
    np.testing.assert_allclose(filtered.covariance[3:], wide.covariance[3:], rtol=1e-4)
    assert np.isinf(filtered.covariance[:3, 1, 1]).all()  # three steps with one observation: no slope yet


def test_a_diffuse_start_is_right_in_float32():
    exact, narrow = (kalman.smooth(_trend(dtype), _series(dtype)) for dtype in ("float64", "float32"))
    np.testing.assert_allclose(narrow.mean, exact.mean, atol=1e-4)
    np.testing.assert_allclose(narrow.covariance, exact.covariance, atol=1e-5)
    np.testing.assert_allclose(narrow.log_likelihood, exact.log_likelihood, rtol=1e-6)


def test_the_gradient_of_the_diffuse_likelihood():
    y = _series("float64")
    value = lambda q: kalman.log_likelihood(_trend("float64")._replace(dynamics_noise=jnp.diag(q)), y)
    check_grads(value, (jnp.array([0.1, 0.01]),), 1, rtol=1e-3)


def test_paths_from_a_diffuse_start_have_the_smoothed_moments():
    y, system = _series("float64"), _trend("float64")
    draws = jax.jit(jax.vmap(lambda key: kalman.sample(key, system, y)))(jr.split(jr.key(0), 20_000))
    smoothed = kalman.smooth(system, y)
    spread = np.sqrt(np.diagonal(smoothed.covariance, 0, 1, 2))
    np.testing.assert_allclose((draws.mean(0) - smoothed.mean) / spread, 0, atol=6 / np.sqrt(20_000))
    np.testing.assert_allclose(draws.std(0) / spread, 1, atol=6 / np.sqrt(40_000))


def test_an_unobserved_diffuse_series_says_nothing():
    nothing = jnp.full((4, 1), jnp.nan)
    assert float(kalman.log_likelihood(_trend("float64"), nothing)) == 0
    assert np.isinf(np.diagonal(kalman.smooth(_trend("float64"), nothing).covariance, 0, 1, 2)).all()
    assert float(kalman.log_likelihood(_trend("float64", 1.0), nothing)) == 0


# ------------------------------------------------------------------ at rest, batches, float32, bad input


def test_steady_state_is_the_limit_of_the_filter():
    system, _ = make("constant")
    limit = kalman.steady_state(system)
    run = kalman.filter(system, jnp.zeros((200, 2)))
    assert limit.converged
    np.testing.assert_allclose(limit.filtered, run.covariance[-1], atol=1e-12)
    lost = system._replace(dynamics=jnp.diag(jnp.array([1.2, 0.5, 0.5])), emission=jnp.eye(2, 3, 1))
    assert not kalman.steady_state(lost).converged
    with pytest.raises(ValueError, match="constant system"):
        kalman.steady_state(make("varying")[0])


def test_a_batch_is_a_loop():
    system, y = make("constant")
    ys = jnp.stack([y, jnp.where(jnp.isnan(y), 0.5, y), y[::-1]])
    both = jax.jit(jax.vmap(jax.value_and_grad(kalman.log_likelihood), in_axes=(None, 0)))(system, ys)
    for i, one in enumerate(ys):
        value, slope = jax.value_and_grad(kalman.log_likelihood)(system, one)
        np.testing.assert_allclose(both[0][i], value, rtol=1e-10)
        np.testing.assert_allclose(both[1].dynamics[i], slope.dynamics, atol=1e-9)


@pytest.mark.parametrize("form", slow_parallel)
def test_float32_agrees_with_float64_over_ten_thousand_steps(form):
    rng = np.random.default_rng(3)
    wide = make("constant")[0]._replace(dynamics_offset=None, emission_offset=None)
    y = jnp.asarray(rng.normal(size=(10_000, 2)))
    narrow = jax.tree_util.tree_map(lambda a: a.astype("float32"), wide)
    exact, found = kalman.smooth(wide, y), kalman.smooth(narrow, y.astype("float32"), **FORMS[form])
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-4)
    np.testing.assert_allclose(found.covariance, exact.covariance, atol=1e-4)
    np.testing.assert_allclose(found.log_likelihood, exact.log_likelihood, rtol=1e-6)


@pytest.mark.parametrize("form", ["joseph", "square_root"])
def test_constant_velocity_from_a_wide_start_in_float32(form):
    array = lambda a: jnp.asarray(a, "float32")
    system = kalman.System(
        array([0, 0]),
        array(1e6 * np.eye(2)),
        array([[1, 1], [0, 1]]),
        array(np.zeros((2, 2))),
        array([[1, 0]]),
        array([1]),
    )
    found = kalman.filter(system, array(np.arange(5.0))[:, None], form=form).covariance[-1]
    np.testing.assert_allclose(np.diag(found), [0.6, 0.1], atol=5e-5)
    if form == "square_root":  # the smoother too: nothing is lost by a difference
        back = kalman.smooth(system, array(np.arange(5.0))[:, None], form=form).covariance[0]
        np.testing.assert_allclose(np.diag(back), [0.6, 0.1], atol=1e-4)


def test_bad_input_is_named():
    system, y = make("constant")
    cases = {
        "y has shape": (system, y[0]),
        "y has 3 features": (system, jnp.ones((4, 3))),
        "y is empty": (system, jnp.ones((0, 2))),
        "dynamics has shape": (system._replace(dynamics=jnp.eye(2)), y),
        "dynamics_noise must be positive definite": (system._replace(dynamics_noise=-jnp.eye(3)), y),
        "emission_noise must be positive definite": (system._replace(emission_noise=jnp.array([1.0, -1.0])), y),
        "initial_covariance must be symmetric": (system._replace(initial_covariance=jnp.eye(3, k=1)), y),
        "emission_offset has shape": (system._replace(emission_offset=jnp.ones(3)), y),
        "emission has shape": (system._replace(emission=jnp.ones(3)), y),
    }
    for message, (bad, data) in cases.items():
        with pytest.raises(ValueError, match=message):
            kalman.filter(bad, data)
    with pytest.raises(ValueError, match=r"dynamics has shape \(3, 3, 3\); wanted \(4, 3, 3\)"):
        kalman.smooth(system._replace(dynamics=jnp.zeros((3, 3, 3))), y)
    with pytest.raises(ValueError, match="mask has shape"):
        kalman.smooth(system, y, jnp.ones(3, bool))
    with pytest.raises(ValueError, match="form must be"):
        kalman.filter(system, y, form="cholesky")
    with pytest.raises(ValueError, match="step by step"):
        kalman.filter(system, y, form="square_root", parallel=True)
    with pytest.raises(ValueError, match="proper start"):
        kalman.step(_trend("float64"), None, jnp.ones(1))


def test_an_impossible_observation_is_impossible():
    """A state known exactly, measured exactly, elsewhere."""
    none = jnp.zeros((1, 1))
    system = kalman.System(jnp.zeros(1), none, jnp.eye(1), none, jnp.eye(1), jnp.zeros(1))
    assert float(kalman.log_likelihood(system, jnp.array([[0.0], [1.0]]))) == -jnp.inf
    assert np.isfinite(float(kalman.log_likelihood(system, jnp.array([[0.0], [0.0]]))))
    slope = eqx.filter_grad(kalman.log_likelihood)(system, jnp.array([[0.0], [0.0]]))
    assert all(bool(jnp.all(jnp.isfinite(a))) for a in slope if a is not None)


def _long(dtype, radius, t=300):
    """A constant system whose covariances settle slowly or quickly, and a series without gaps."""
    rng = np.random.default_rng(0)
    turn = radius * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    parts = rng.normal(size=4), 50 * np.eye(4), turn, 0.1 * np.eye(4), rng.normal(size=(2, 4)), _covariance(rng, 2)
    system = kalman.System(*[jnp.asarray(a, dtype) for a in parts], jnp.asarray(rng.normal(size=(t - 1, 4)), dtype))
    return system, jnp.asarray(rng.normal(size=(t, 2)), dtype)


@pytest.mark.parametrize("radius", [0.99, *[pytest.param(r, marks=pytest.mark.thorough) for r in (0.5, 1.0)]])
def test_settled_covariances_are_those_of_all_steps(radius):
    """A missing step after the end sends the same series through the recursion that takes every step."""
    system, y = _long("float64", radius)
    longer = system._replace(dynamics_offset=jnp.concatenate([system.dynamics_offset, jnp.zeros((1, 4))]))
    gap = jnp.concatenate([y, jnp.full((1, 2), jnp.nan)])
    quick, every = kalman.filter(system, y), kalman.filter(longer, gap)
    np.testing.assert_allclose(quick.mean, every.mean[:-1], atol=1e-10)
    np.testing.assert_allclose(quick.covariance, every.covariance[:-1], atol=1e-12)
    np.testing.assert_allclose(quick.log_likelihood, every.log_likelihood, rtol=1e-12)
    slow = jax.grad(lambda s: kalman.filter(s, gap).log_likelihood)(longer)
    for quick_way in (lambda s: kalman.filter(s, y).log_likelihood, lambda s: kalman.log_likelihood(s, y)):
        found = jax.grad(quick_way)(system)
        np.testing.assert_allclose(found.dynamics, slow.dynamics, rtol=1e-8)
        np.testing.assert_allclose(found.emission_noise, slow.emission_noise, rtol=1e-8)


def test_settled_covariances_in_float32_and_in_a_batch_of_systems():
    systems, series = zip(*[_long("float32", radius) for radius in (0.5, 1.0)], strict=True)
    both = jax.tree_util.tree_map(lambda *a: jnp.stack(a), *systems)
    found = jax.jit(jax.vmap(kalman.filter))(both, jnp.stack(series))
    for i, radius in enumerate((0.5, 1.0)):
        exact = kalman.filter(*_long("float64", radius))
        np.testing.assert_allclose(found.covariance[i], exact.covariance, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(found.log_likelihood[i], exact.log_likelihood, rtol=1e-5)


def test_more_features_than_states_condense_once():
    system, _ = _long("float64", 0.9)
    rng = np.random.default_rng(1)
    wide = system._replace(emission=jnp.asarray(rng.normal(size=(7, 4))), emission_noise=jnp.full(7, 0.4))
    y = jnp.asarray(rng.normal(size=(300, 7)))
    longer = wide._replace(dynamics_offset=jnp.concatenate([wide.dynamics_offset, jnp.zeros((1, 4))]))
    every = kalman.filter(longer, jnp.concatenate([y, jnp.full((1, 7), jnp.nan)]))
    quick = kalman.filter(wide, y)
    np.testing.assert_allclose(quick.mean, every.mean[:-1], atol=1e-10)
    np.testing.assert_allclose(quick.log_likelihood, every.log_likelihood, rtol=1e-12)

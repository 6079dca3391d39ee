"""Kalman filtering against statsmodels and published figures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.inference import kalman

statespace = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")


def _random(seed, p, d, t):
    rng = np.random.default_rng(seed)
    spread = lambda k: (lambda a: a @ a.T / k + 0.2 * np.eye(k))(rng.normal(size=(k, k)))
    parts = rng.normal(size=p), spread(p), 0.9 * np.linalg.qr(rng.normal(size=(p, p)))[0], spread(p)
    parts = *parts, rng.normal(size=(d, p)), spread(d), rng.normal(size=p), rng.normal(size=d)
    y = rng.normal(size=(t, d))
    y[rng.uniform(size=y.shape) < 0.2] = np.nan
    y[3] = np.nan
    return kalman.System(*map(jnp.asarray, parts)), y


def _peer(system, y):
    p, d = system.num_latents, system.num_features
    peer = statespace.KalmanSmoother(d, p)
    peer.bind(np.ascontiguousarray(y))
    names = {
        "design": system.emission,
        "obs_cov": system.emission_noise,
        "transition": system.dynamics,
        "selection": np.eye(p),
        "state_cov": system.dynamics_noise,
        "state_intercept": system.dynamics_offset,
        "obs_intercept": system.emission_offset,
    }
    for name, value in names.items():
        peer[name] = np.asarray(value)[:, None] if "intercept" in name else np.asarray(value)
    peer.initialize_known(np.asarray(system.initial_mean), np.asarray(system.initial_covariance))
    return peer


@pytest.mark.parametrize(("seed", "p", "d"), [(0, 3, 2), (1, 2, 4), (2, 4, 1)])
def test_random_systems_with_missing_data(seed, p, d):
    system, y = _random(seed, p, d, 60)
    want = _peer(system, y).smooth()
    filtered, smoothed = kalman.filter(system, jnp.asarray(y)), kalman.smooth(system, jnp.asarray(y))
    tolerance = {"atol": 1e-8, "rtol": 1e-8}
    np.testing.assert_allclose(filtered.log_likelihood, want.llf, **tolerance)
    np.testing.assert_allclose(filtered.mean, want.filtered_state.T, **tolerance)
    np.testing.assert_allclose(filtered.covariance, np.moveaxis(want.filtered_state_cov, -1, 0), **tolerance)
    np.testing.assert_allclose(smoothed.mean, want.smoothed_state.T, **tolerance)
    np.testing.assert_allclose(smoothed.covariance, np.moveaxis(want.smoothed_state_cov, -1, 0), **tolerance)


@pytest.fixture(scope="module")
def nile():
    from statsmodels.datasets import nile

    return np.asarray(nile.load().data.volume, np.float64)[:, None]


def _level(dtype, diffuse, start=0.0, spread=1e7):
    array = lambda a: jnp.asarray(a, dtype)
    return kalman.System(
        array([start]),
        array([[spread]]),
        array([[1.0]]),
        array([[1469.1]]),
        array([[1.0]]),
        array([15099.0]),
        diffuse=jnp.array([True]) if diffuse else None,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nile_figures(nile, dtype):
    y = jnp.asarray(nile, dtype)
    tolerance = {"float32": 5e-7, "float64": 1e-8}[dtype]
    np.testing.assert_allclose(kalman.log_likelihood(_level(dtype, False), y), -641.58558, rtol=tolerance + 1e-8)
    np.testing.assert_allclose(kalman.log_likelihood(_level(dtype, True), y), -633.46456, rtol=tolerance + 1e-8)
    # conditional on the first observation: a proper start there
    given = _level(dtype, False, float(nile[0, 0]), 15099.0 + 1469.1)
    np.testing.assert_allclose(kalman.log_likelihood(given, y[1:]), -632.54563, rtol=tolerance + 1e-8)


def test_nile_maximum_likelihood(nile):
    ys = jnp.asarray(nile)[None]
    result = pml.fit(pml.sequences.local_level(ys), ys, pml.LBFGS()).raise_if_failed()
    np.testing.assert_allclose(result.model.emission.point().scale ** 2, 15098.5, rtol=1e-4)
    np.testing.assert_allclose(result.model.dynamics.point().scale ** 2, 1469.18, rtol=1e-4)
    near = pml.fit(result.model, ys, pml.EM(), max_steps=20, rtol=-1.0)  # EM rests where the gradient does
    np.testing.assert_allclose(near.final_objective, result.final_objective, rtol=1e-10)


def test_trend_season_and_forecast_are_those_of_statsmodels():
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    rng = np.random.default_rng(0)
    y = np.cumsum(0.2 + 0.1 * rng.normal(size=60)) + np.tile([2.0, -1.0, 0.5, -1.5], 15) + 0.3 * rng.normal(size=60)
    y[[5, 17, 18]] = np.nan
    model = pml.sequences.combine(pml.sequences.local_trend(), pml.sequences.seasonal(4))
    variances = np.array([0.09, 0.02, 0.001, 0.003])  # irregular, level, trend, season
    scales = jnp.sqrt(jnp.asarray([*variances[1:], 0.0, 0.0]))
    model = eqx.tree_at(
        lambda m: (m.dynamics.distribution.scale, m.emission.distribution.scale),
        model,
        (scales, jnp.sqrt(jnp.asarray(variances[:1]))),
    )
    peer = UnobservedComponents(y, "lltrend", seasonal=4, use_exact_diffuse=True)
    ours = jnp.asarray(y)[:, None]
    np.testing.assert_allclose(model.log_prob(ours), peer.loglike(variances), rtol=1e-9)
    want = peer.smooth(variances)
    np.testing.assert_allclose(model.smooth(ours).mean, want.smoothed_state.T, atol=1e-7)
    ahead, future = model.forecast(ours, 8), want.get_forecast(8)
    np.testing.assert_allclose(ahead.mean[:, 0], future.predicted_mean, atol=1e-8)
    np.testing.assert_allclose(jnp.sqrt(ahead.covariance[:, 0, 0]), future.se_mean, atol=1e-8)


def test_steady_state_solves_the_riccati_equation():
    from scipy.linalg import solve_discrete_are

    system, _ = _random(0, 3, 2, 10)
    found = kalman.steady_state(system)
    want = solve_discrete_are(
        *(np.asarray(a) for a in (system.dynamics.T, system.emission.T, system.dynamics_noise)),
        np.asarray(system.emission_noise),
    )
    np.testing.assert_allclose(found.predicted, want, atol=1e-10)
    spread = system.emission @ want @ system.emission.T + system.emission_noise
    np.testing.assert_allclose(found.gain, jnp.linalg.solve(spread, system.emission @ want).T, atol=1e-10)
    assert jax.jit(lambda s: kalman.steady_state(s).converged)(system)

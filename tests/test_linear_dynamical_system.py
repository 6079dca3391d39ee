"""Linear dynamical systems: learning, forecasting, inputs, structural components, tracking, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.distributions import LinearGaussian, LinearNormal, MultivariateNormal
from probml_jax.sequences import LinearDynamicalSystem, Sequences

ROTATE = [[0.9, -0.3], [0.3, 0.9]]


def _system(dtype="float64", inputs=0, noise="full"):
    rng = np.random.default_rng(1)
    array = lambda a: jnp.asarray(a, dtype)
    drive = rng.normal(size=(2, inputs)), rng.normal(size=(3, inputs))
    move = LinearGaussian(array(np.hstack([ROTATE, drive[0]])), array([0.1, 0.0]), array(0.2 * np.eye(2)))
    matrix = array(np.hstack([rng.normal(size=(3, 2)), drive[1]]))
    look = LinearNormal(matrix, array([1.0, 2.0, 3.0]), array([0.3, 0.4, 0.5]))
    if noise == "full":
        a = rng.normal(size=(3, 3))
        look = LinearGaussian(matrix, array([1.0, 2.0, 3.0]), array(0.1 * np.eye(3) + 0.1 * a @ a.T))
    start = MultivariateNormal(array([1.0, 0.0]), array(np.eye(2)))
    return LinearDynamicalSystem(pml.ML(start), pml.ML(move), pml.ML(look))


def _holes(y, share=0.2):
    return jnp.where(jr.uniform(jr.key(7), y.shape) < share, jnp.nan, y)


@pytest.mark.thorough
@pytest.mark.parametrize("noise", ["full", pytest.param("diagonal", marks=pytest.mark.thorough)])
def test_the_e_step_is_the_one_of_posterior_paths(noise):
    """Expected statistics against averages over paths drawn from the posterior, missing entries drawn as well."""
    model = _system(noise=noise)
    y = _holes(model.sample(jr.key(0), 6)[1])
    stats, _ = jax.jit(lambda m: m.e_step(y[None], jnp.ones(1)))(model)
    look, draws = model.emission.point(), 20_000

    def complete(key):
        path, fill = jr.split(key)
        z = model.sample_posterior(path, y)
        mean = z @ look.matrix.T + look.offset[None]

        def one(key, y, mean):
            noisy = MultivariateNormal(mean, look.covariance)
            filled, spread = noisy.impute(y)
            jitter = 1e-12 * jnp.eye(3)
            drawn = filled + jnp.linalg.cholesky(spread + jitter) @ jr.normal(key, (3,))
            return jnp.where(jnp.isnan(y), drawn, y)

        return z, jax.vmap(one)(jr.split(fill, len(y)), y, mean)

    z, full = jax.jit(jax.vmap(complete))(jr.split(jr.key(1), draws))
    flat, share = lambda a: a.reshape(-1, a.shape[-1]), 1 / draws
    moved = model.dynamics.statistics((flat(z[:, :-1]), flat(z[:, 1:])), jnp.full(draws * 5, share))
    emitted = model.emission.statistics((flat(z), flat(full)), jnp.full(draws * 6, share))
    for a, b in zip(jax.tree_util.tree_leaves(stats[1:]), jax.tree_util.tree_leaves((moved, emitted)), strict=True):
        np.testing.assert_allclose(a, b, atol=0.03 * (1 + float(jnp.abs(a).max())))


def test_ragged_em_is_em_of_the_cut_series():
    model = _system()
    ys = jax.vmap(lambda key: model.sample(key, 8)[1])(jr.split(jr.key(0), 3))
    lengths = jnp.array([8, 5, 1])
    e_step = eqx.filter_jit(lambda data, weights: model.e_step(data, weights))
    together = e_step((ys.at[1, 5:].set(jnp.nan), lengths), jnp.ones(3))
    parts = [e_step(ys[i : i + 1, : int(n)], jnp.ones(1)) for i, n in enumerate(lengths)]
    summed = jax.tree_util.tree_map(lambda *a: sum(a), *parts)
    for a, b in zip(jax.tree_util.tree_leaves(together), jax.tree_util.tree_leaves(summed), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.thorough
def test_em_recovers_a_system_up_to_its_basis():
    """Latent coordinates are free to rotate; eigenvalues of the dynamics and the spread of observations are not."""
    true = _system(noise="diagonal")
    ys = jax.vmap(lambda key: true.sample(key, 100)[1])(jr.split(jr.key(0), 20))
    start = pml.sequences.linear_dynamical_system(jr.key(1), ys, 2)
    result = pml.fit(start, ys, pml.EM(), max_steps=150)
    assert float(result.final_objective) > float(pml.objective(true, ys, jnp.ones(20))) - 60
    values = lambda m: np.sort_complex(np.linalg.eigvals(np.asarray(m.dynamics.point().matrix)))
    np.testing.assert_allclose(values(result.model), values(true), atol=0.03)
    np.testing.assert_allclose(result.model.emission.point().scale, true.emission.point().scale, rtol=0.1)


def test_inputs_are_offsets():
    model = _system(inputs=2)
    us = jr.normal(jr.key(3), (7, 2))
    _, y = model.sample(jr.key(0), 7, us)
    y = y.at[2].set(jnp.nan)
    system = _system(inputs=2).system()
    move, look = model.dynamics.point(), model.emission.point()
    shifted = system._replace(
        dynamics_offset=us[:-1] @ move.matrix[:, 2:].T + move.offset[None],
        emission_offset=us @ look.matrix[:, 2:].T + look.offset[None],
    )
    want = pml.inference.kalman.smooth(shifted, y)
    np.testing.assert_allclose(model.smooth((y, us)).mean, want.mean, atol=1e-12)
    np.testing.assert_allclose(model.log_prob((y, us)), want.log_likelihood, rtol=1e-12)
    # a forecast is the smoother's view of steps that have inputs and no observations
    future = jr.normal(jr.key(4), (3, 2))
    longer = jnp.concatenate([y, jnp.full((3, 3), jnp.nan)]), jnp.concatenate([us, future])
    ahead, whole = model.forecast((y, us), 3, future), model.observe(longer)
    np.testing.assert_allclose(ahead.mean, whole.mean[7:], atol=1e-10)
    np.testing.assert_allclose(ahead.covariance, whole.covariance[7:] + look.covariance[None], atol=1e-10)
    with pytest.raises(ValueError, match="inputs of the 3 future steps"):
        model.forecast((y, us), 3)
    ys, many = jnp.stack([y, y]), jnp.stack([us, us])
    result = pml.fit(model, (ys, many), max_steps=5, rtol=-1.0)
    assert np.all(np.diff(np.asarray(result.objective)) > 0)
    with pytest.raises(ValueError, match="has inputs"):
        pml.fit(model, ys)


def test_a_forecast_begins_one_step_after_the_data_and_widens():
    model = _system()
    y = model.sample(jr.key(0), 9)[1]
    ahead = model.forecast((jnp.concatenate([y, jnp.full((2, 3), 1e6)]), jnp.int32(9)), 4)
    again = model.forecast(y, 4)
    np.testing.assert_allclose(ahead.mean, again.mean, atol=1e-9)
    now, look = model.filter(y), model.emission.point()
    move = model.dynamics.point()
    first = look.mean_at(move.mean_at(now.mean[-1]))
    np.testing.assert_allclose(again.mean[0], first, atol=1e-12)
    low, high = again.interval(0.9)
    np.testing.assert_allclose((high - low)[0], 2 * 1.6448536 * np.sqrt(np.diag(again.covariance[0])), rtol=1e-6)
    value = MultivariateNormal(again.mean[0], again.covariance[0]).log_prob(y[0])
    gain = model.log_prob(jnp.concatenate([y, y[:1]])) - model.log_prob(y)
    np.testing.assert_allclose(gain, value, rtol=1e-9)


def test_imputation_is_the_conditional_mean():
    model = _system()
    y = model.sample(jr.key(0), 5)[1]
    holes = y.at[1].set(jnp.nan).at[3, 0].set(jnp.nan)
    filled = model.impute(holes)
    # derivative-free check: the density of the series is highest at the imputed values
    slope = jax.grad(lambda v: model.log_prob(jnp.where(jnp.isnan(holes), v, y)))(filled)
    np.testing.assert_allclose(jnp.where(jnp.isnan(holes), slope, 0), 0, atol=1e-8)
    np.testing.assert_array_equal(filled[0], y[0])


def test_online_steps_add_up():
    model = _system()
    y = model.sample(jr.key(0), 4)[1]
    belief, total = None, 0.0
    for row in y:
        belief, gain = model.step(belief, row)
        total += gain
    np.testing.assert_allclose(total, model.log_prob(y), rtol=1e-12)


# ------------------------------------------------------------------ structure


def test_what_is_fixed_stays_fixed():
    ys = jnp.cumsum(jr.normal(jr.key(0), (3, 40, 1)), axis=1)
    start = pml.sequences.combine(pml.sequences.local_level(ys), pml.sequences.seasonal(4, ys))
    for method in (pml.EM(), pml.LBFGS()):
        end = pml.fit(start, ys, method, max_steps=10).model
        np.testing.assert_array_equal(end.dynamics.point().matrix, start.dynamics.point().matrix)
        np.testing.assert_array_equal(end.emission.point().matrix, start.emission.point().matrix)
        zero = np.asarray(start.dynamics.point().scale) == 0
        np.testing.assert_array_equal(np.asarray(end.dynamics.point().scale)[zero], 0)
        assert np.all(np.asarray(end.dynamics.point().scale)[~zero] != np.asarray(start.dynamics.point().scale)[~zero])
    assert pml.num_parameters(start) == 3


@pytest.mark.thorough
def test_components_add_up_to_the_signal():
    season = jnp.tile(jnp.array([3.0, -1.0, -2.0, 0.0]), 10)
    y = (0.5 * jnp.arange(40.0) + season + 0.1 * jr.normal(jr.key(0), (40,)))[:, None]
    model = pml.sequences.combine(pml.sequences.local_trend(y[None], smooth=True), pml.sequences.seasonal(4, y[None]))
    model = pml.fit(model, y[None], pml.LBFGS()).model
    trend, wave = model.contributions(y)
    np.testing.assert_allclose(trend + wave, model.observe(y).mean, atol=1e-9)
    np.testing.assert_allclose(wave[:, 0], season, atol=0.2)
    np.testing.assert_allclose(trend[:, 0], 0.5 * np.arange(40.0), atol=0.2)


def test_many_states_without_noise_of_their_own():
    """Twelve states, two of them with noise, all unknown at first: nothing to factorize, and nothing lost."""
    model = pml.sequences.combine(pml.sequences.local_level(), pml.sequences.seasonal(12))
    y = model.sample(jr.key(0), 40)[1]
    assert np.isfinite(y).all()
    smoothed, by_roots = model.smooth(y), model.smooth(y, form="square_root")
    np.testing.assert_allclose(smoothed.mean, by_roots.mean, atol=1e-6)  # singular to the jitter of a factorization
    np.testing.assert_allclose(smoothed.log_likelihood, model.log_prob(y), rtol=1e-8)
    assert np.isfinite(model.sample_posterior(jr.key(1), y)).all()
    np.testing.assert_allclose(smoothed.mean[1:, 2], smoothed.mean[:-1, 1], atol=1e-6)  # a season moves on


def test_autoregression_in_companion_form_is_the_regression_on_lags():
    rng = np.random.default_rng(0)
    y = np.zeros(400)
    for i in range(2, 400):
        y[i] = 0.6 * y[i - 1] - 0.3 * y[i - 2] + rng.normal()
    lags = np.stack([y[1:-1], y[:-2]], axis=1)
    wanted = np.linalg.lstsq(lags, y[2:], rcond=None)[0]
    ys = jnp.asarray(y)[None, :, None]
    result = pml.fit(pml.sequences.autoregressive(2, ys), ys, pml.LBFGS())
    np.testing.assert_allclose(
        result.model.dynamics.point().matrix[0], wanted, atol=5e-3
    )  # y_1 and y_2 count too: 2 of 400
    noisy = pml.fit(pml.sequences.autoregressive(1, ys, noisy=True), ys, max_steps=20, rtol=-1.0)
    assert np.all(np.diff(np.asarray(noisy.objective)) > 0)


@pytest.mark.thorough
def test_tracking_learns_its_two_scales():
    true = pml.sequences.constant_velocity(2, dt=0.5, acceleration=0.7, noise=2.0)
    ys = jax.vmap(lambda key: true.sample(key, 200)[1])(jr.split(jr.key(0), 10))
    result = pml.fit(pml.sequences.constant_velocity(2, dt=0.5), ys, pml.LBFGS())
    np.testing.assert_allclose(result.model.dynamics.point().scale, 0.7, rtol=0.1)
    np.testing.assert_allclose(result.model.emission.point().scale, 2.0, rtol=0.05)
    q = true.system().dynamics_noise
    np.testing.assert_allclose(q[::2, ::2], 0.49 * np.array([[0.125 / 3, 0.125], [0.125, 0.5]]), rtol=1e-12)


# ------------------------------------------------------------------ honesty


@pytest.mark.thorough
def test_a_series_without_observations_changes_nothing():
    for model in (_system(), pml.sequences.local_level()):
        d = model.emission.point().offset.size
        y = model.sample(jr.key(0), 6)[1]
        both = jnp.stack([y, jnp.full((6, d), jnp.nan)])
        e_step = eqx.filter_jit(lambda m, ys: m.e_step(ys, jnp.ones(len(ys)))[1])
        np.testing.assert_allclose(e_step(model, both), e_step(model, y[None]), rtol=1e-12)
        result = pml.fit(model, both, max_steps=3, rtol=-1.0)
        assert np.all(np.diff(np.asarray(result.objective)) > -1e-10)


def test_an_unstable_system_is_scored_and_learned():
    model = eqx.tree_at(lambda m: m.dynamics.distribution.matrix, _system(), jnp.array([[1.2, 0.0], [0.0, 0.5]]))
    y = model.sample(jr.key(0), 30)[1]
    assert np.isfinite(float(model.log_prob(y)))
    result = pml.fit(model, y[None], max_steps=10, rtol=-1.0).raise_if_failed()
    assert np.all(np.diff(np.asarray(result.objective)) > -1e-9)


def test_results_keep_their_dtype():
    model = _system("float32")
    y = model.sample(jr.key(0), 6)[1]
    outputs = model.smooth(y), model.forecast(y, 2), model.impute(y), model.log_prob(y)
    assert {a.dtype for a in jax.tree_util.tree_leaves(outputs)} == {jnp.dtype("float32")}
    for build in (pml.sequences.local_level, pml.sequences.local_trend):
        assert build(y[None, :, :1]).log_prob(y[:, :1]).dtype == jnp.dtype("float32")


def test_bad_input_is_named():
    model, ys = _system(), jnp.ones((2, 5, 3))
    for message, data in {
        r"wanted \(n, t, 3\)": ys[0],
        "ys has 2 features": ys[:, :, :2],
        "lengths holds 9": (ys, jnp.array([9, 2])),
        "has inputs, but the system has none": (ys, jnp.ones((2, 5, 1))),
    }.items():
        with pytest.raises(ValueError, match=message):
            pml.fit(model, data)
    initial, dynamics, emission = model.initial, model.dynamics, model.emission
    with pytest.raises(TypeError, match="initial must hold a MultivariateNormal"):
        LinearDynamicalSystem(dynamics, dynamics, emission)
    with pytest.raises(TypeError, match="emission must hold a linear family"):
        LinearDynamicalSystem(initial, dynamics, initial)
    with pytest.raises(ValueError, match="emission reads 3 values"):
        LinearDynamicalSystem(initial, dynamics, pml.ML(LinearNormal(jnp.ones((1, 3)), jnp.ones(1), jnp.ones(1))))
    prior = pml.conjugate.NormalInverseWishart(jnp.zeros(2), 1.0, jnp.eye(2), 4.0)
    with pytest.raises(TypeError, match="ML, MAP or Frozen"):
        LinearDynamicalSystem(pml.Bayes(prior, prior), dynamics, emission)
    build = pml.sequences.linear_dynamical_system
    with pytest.raises(ValueError, match="num_latents must be"):
        build(jr.key(0), ys, 0)
    with pytest.raises(ValueError, match="noise must be one of"):
        build(jr.key(0), ys, 2, noise="round")
    with pytest.raises(ValueError, match="want more than"):
        build(jr.key(0), ys[:, :2], 4)
    with pytest.raises(ValueError, match="a structural component has one"):
        pml.sequences.local_level(ys)
    with pytest.raises(ValueError, match="period"):
        pml.sequences.seasonal(1)
    with pytest.raises(ValueError, match="order"):
        pml.sequences.autoregressive(0)
    with pytest.raises(ValueError, match="must be positive"):
        pml.sequences.constant_velocity(2, noise=-1.0)
    with pytest.raises(TypeError, match="LinearNormal leaves"):
        pml.sequences.combine(model)
    assert pml.fit(model, Sequences(ys, jnp.array([5, 2])), max_steps=1).num_steps == 1

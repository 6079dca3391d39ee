"""Linear dynamical systems against statsmodels (float64) and, where installed, dynamax (float32)."""

import dataclasses
import importlib.util
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

import probml_jax as pml
from benchmarks.timing import Row, measure
from probml_jax.inference import kalman


def _system(dtype: str, p: int = 4, d: int = 2) -> kalman.System:
    rng = np.random.default_rng(0)
    noise = 0.5 * np.eye(d)
    noise[0, 1] = noise[1, 0] = 0.1
    turn = 0.95 * np.linalg.qr(rng.normal(size=(p, p)))[0]
    parts = np.zeros(p), np.eye(p), turn, 0.1 * np.eye(p), rng.normal(size=(d, p)), noise
    return kalman.System(*[jnp.asarray(a, dtype) for a in parts])


def _peer(system: kalman.System, y: np.ndarray) -> KalmanSmoother:
    p, d = system.num_latents, system.num_features
    peer = KalmanSmoother(d, p)
    peer.bind(np.ascontiguousarray(y))
    peer["design"], peer["obs_cov"] = np.asarray(system.emission), np.asarray(system.emission_noise)
    peer["transition"], peer["selection"] = np.asarray(system.dynamics), np.eye(p)
    peer["state_cov"] = np.asarray(system.dynamics_noise)
    peer.initialize_known(np.asarray(system.initial_mean), np.asarray(system.initial_covariance))
    return peer


def _model(system: kalman.System) -> pml.sequences.LinearDynamicalSystem:
    families = pml.distributions
    zero = lambda size: jnp.zeros(size, system.dynamics.dtype)
    start = families.MultivariateNormal(system.initial_mean, system.initial_covariance)
    move = families.LinearGaussian(system.dynamics, zero(system.num_latents), system.dynamics_noise)
    look = families.LinearGaussian(system.emission, zero(system.num_features), system.emission_noise)
    return pml.sequences.LinearDynamicalSystem(pml.ML(start), pml.ML(move), pml.ML(look))


def one_series(t: int = 10_000) -> list[Row]:
    exact = _system("float64")
    y = kalman.simulate(jr.key(0), exact, t)[1]
    peer = _peer(exact, np.asarray(y))
    rows, size = [], f"T={t:,} p=4 d=2"
    for name, ours, theirs in (
        ("filter", lambda: kalman.filter(exact, y), lambda: peer.filter().llf),
        ("smoother", lambda: kalman.smooth(exact, y), lambda: peer.smooth().llf),
    ):
        mine, other = measure(ours, 9), measure(theirs, 9)
        off = abs(float(ours().log_likelihood) / float(peer.loglike()) - 1)
        note = f"log-likelihoods agree to {off:.0e}"
        rows.append(Row(f"Kalman {name}, {size}, float64", "statsmodels", other.run, mine.run, mine.first, 1.5, note))
    return rows + _narrow(y.astype("float32"), size)


def _narrow(y: jax.Array, size: str) -> list[Row]:
    """Float32: the same series put to dynamax, where it is installed (it needs a nightly TensorFlow Probability)."""
    if importlib.util.find_spec("dynamax") is None:
        return []
    system = _system("float32")
    model = _model(system)
    slope = jax.jit(jax.value_and_grad(kalman.log_likelihood))
    learn = lambda: pml.fit(model, y[None], max_steps=4, rtol=-1.0).objective  # four steps and a last evaluation
    questions = [
        ("filter", lambda: kalman.filter(system, y), 4, ""),
        ("smoother", lambda: kalman.smooth(system, y), 4, ""),
        ("value and gradient", lambda: slope(system, y), 10, ""),
        ("five E-steps of EM", learn, 20, "it compiles again at every call"),
    ]
    found = []
    for name, ask, target, note in questions:
        mine = measure(ask, 9)
        found.append(Row(f"Kalman {name}, {size}, float32", "dynamax", 0.0, mine.run, mine.first, target, note))
    with jax.enable_x64(False):  # where it is on, dynamax's EM refuses float32
        theirs = [measure(ask, 3).run for ask in _dynamax(system, y)]
    return [dataclasses.replace(row, peer_seconds=seconds) for row, seconds in zip(found, theirs, strict=True)]


def _dynamax(system: kalman.System, y: jax.Array) -> list:
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    p, d = system.num_latents, system.num_features
    peer = LinearGaussianSSM(p, d, has_dynamics_bias=False, has_emissions_bias=False)
    params, props = peer.initialize(
        jr.PRNGKey(0),
        initial_mean=system.initial_mean,
        initial_covariance=system.initial_covariance,
        dynamics_weights=system.dynamics,
        dynamics_covariance=system.dynamics_noise,
        emission_weights=system.emission,
        emission_covariance=system.emission_noise,
    )
    slope = jax.jit(jax.value_and_grad(peer.marginal_log_prob))
    return [
        lambda f=jax.jit(peer.filter): f(params, y),
        lambda f=jax.jit(peer.smoother): f(params, y),
        lambda: slope(params, y),
        lambda: peer.fit_em(params, props, y[None], num_iters=5, verbose=False)[1],
    ]


def many_series(dtype: str, n: int = 1_000, t: int = 200) -> list[Row]:
    system = _system(dtype)
    ys = jax.jit(jax.vmap(lambda key: kalman.simulate(key, system, t)[1]))(jr.split(jr.key(0), n))
    data, size = np.asarray(ys, np.float64), f"{n:,} series of T={t}, {dtype}"
    peer = _peer(_system("float64"), data[0])

    def loop(question):
        for one in data:
            peer.bind(np.ascontiguousarray(one))
            question()

    rows = []
    for name, ours, theirs in (
        ("filter", kalman.filter, lambda: peer.filter().llf),
        ("smoother", kalman.smooth, lambda: peer.smooth().llf),
    ):
        run = jax.jit(jax.vmap(ours, in_axes=(None, 0)))
        mine = measure(lambda run=run: run(system, ys), 9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = measure(lambda theirs=theirs: loop(theirs), 2)
        target = 20 if dtype == "float32" else None
        rows.append(Row(f"Kalman {name}, {size}", "statsmodels", other.run, mine.run, mine.first, target))
    return rows


def rows(data_dir=None) -> list[Row]:
    return [*one_series(), *many_series("float32"), *many_series("float64")]

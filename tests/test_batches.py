"""Data that come in batches: exact EM is exact, online EM gets there, memory maps are not loaded."""

import os
import signal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from helpers import MODELS

import probml_jax as pml

N = 1_001


@pytest.fixture(scope="module")
def xs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 2)) + np.where(rng.uniform(size=(N, 1)) < 0.4, 0.0, 5.0)


@pytest.fixture(scope="module")
def model(xs):
    return pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=2, covariance="diagonal", init="random")


@pytest.fixture(scope="module")
def whole(model, xs):
    return pml.fit(model, xs, max_steps=15, rtol=-1.0)


def _sources(xs, tmp_path):
    file = tmp_path / "data.npy"
    np.save(file, xs)
    cut = [xs[i : i + 150] for i in range(0, N, 150)]
    return {
        "arrays": pml.Batches(xs, 150),
        "memmap": np.load(file, mmap_mode="r"),
        "function": pml.Batches(lambda: iter(cut)),
        "list": pml.Batches(cut),
        "weighted": pml.Batches([(part, np.ones(len(part))) for part in cut], weighted=True),
        "mesh": pml.Batches(xs, 150, mesh=pml.sharding.mesh()),
    }


@pytest.mark.parametrize("kind", ["arrays", "memmap", "function", "list", "weighted", "mesh"])
def test_exact_em_of_batches_is_em(model, xs, whole, tmp_path, kind):
    result = pml.fit(model, _sources(xs, tmp_path)[kind], max_steps=15, rtol=-1.0)
    np.testing.assert_allclose(result.objective, whole.objective, rtol=1e-10)
    assert result.status == whole.status
    assert int(result.num_steps) == 15


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["gaussian_hmm", pytest.param("linear_dynamical_system", marks=pytest.mark.thorough), "bayes_net"]
)
def test_other_models_and_trees_of_arrays(name):
    model, data = MODELS[name](jnp.dtype("float64"))
    data = jax.tree_util.tree_map(np.asarray, data)
    n = jax.tree_util.tree_leaves(data)[0].shape[0]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, n)
    batches = pml.fit(model, pml.Batches(data, 5, weights=weights), max_steps=3, rtol=-1.0)
    whole = pml.fit(model, data, weights=weights, max_steps=3, rtol=-1.0)
    np.testing.assert_allclose(batches.objective, whole.objective, rtol=1e-9)


def test_memory_maps_are_read_a_batch_at_a_time(model, xs, whole, tmp_path, monkeypatch):
    seen = []
    convert = pml.Batches._ready
    monkeypatch.setattr(
        pml.Batches, "_ready", lambda self, item, dtype: seen.append(len(item[0])) or convert(self, item, dtype)
    )
    monkeypatch.setattr("probml_jax._batches._BATCH_BYTES", 16 * 100)
    np.save(tmp_path / "data.npy", xs)
    pml.fit(model, np.load(tmp_path / "data.npy", mmap_mode="r"), max_steps=1, rtol=-1.0)
    assert max(seen) == 100
    assert sum(seen[1:12]) == N


def test_online_em_reaches_what_em_reaches(model, xs):
    best = pml.fit(model, xs, max_steps=300)
    online = pml.fit(model, pml.Batches(xs, 100), pml.OnlineEM(), max_steps=60, rtol=-1.0)
    reached = pml.objective(online.model, jnp.asarray(xs), jnp.ones(N))
    np.testing.assert_allclose(reached, best.final_objective, rtol=1e-4)  # what a decaying step is still away
    assert np.isfinite(online.objective).all()
    assert abs(online.final_objective - reached) < 1e-3 * abs(reached)  # an estimate along the way
    drawn = pml.fit(model, xs, pml.OnlineEM(100, key=jr.key(0)), max_steps=400, rtol=-1.0)
    np.testing.assert_allclose(
        pml.objective(drawn.model, jnp.asarray(xs), jnp.ones(N)), best.final_objective, rtol=1e-3
    )


@pytest.mark.parametrize("estimate", ["map", "bayes"])
def test_online_em_of_one_batch_that_is_everything_is_em(xs, estimate):
    """With all units in every batch and no memory of earlier models, stepwise EM is EM."""
    model = pml.mixtures.gaussian_mixture(jr.key(2), xs, 2, estimate=estimate)
    online = pml.fit(model, pml.Batches(xs, N), pml.OnlineEM(), max_steps=1)
    once = pml.fit(model, xs, max_steps=1)
    for a, b in zip(*map(jax.tree_util.tree_leaves, (online.model, once.model)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_gradients_from_batches(xs):
    labels = (xs[:, 0] + 3 * np.random.default_rng(1).normal(size=N) > 2.5).astype(int)
    model = pml.classifiers.softmax_regression(2, 2, l2=1.0)
    result = pml.fit(model, pml.Batches((xs, labels), 100), pml.Gradient(optax.adam(3e-2)), max_steps=40, rtol=-1.0)
    best = pml.fit(model, (xs, labels), pml.Newton())
    reached = pml.objective(result.model, (jnp.asarray(xs), jnp.asarray(labels)), jnp.ones(N))
    np.testing.assert_allclose(reached, best.final_objective, rtol=1e-2)  # a fixed step hovers
    separable = pml.Batches((xs + 10 * labels[:, None], labels), 100)
    free = pml.classifiers.softmax_regression(2, 2)
    assert pml.fit(free, separable, pml.Gradient(optax.adam(0.3)), max_steps=60).status == pml.Status.degenerate


def test_a_generator_serves_one_pass(model, xs):
    cut = [xs[i : i + 150] for i in range(0, N, 150)]
    once = pml.fit(model, pml.Batches(iter(cut), num_units=N), pml.OnlineEM(), max_steps=1)
    again = pml.fit(model, pml.Batches(cut, num_units=N), pml.OnlineEM(), max_steps=1)
    np.testing.assert_array_equal(once.objective, again.objective)
    assert int(once.num_steps) == 1
    with pytest.raises(ValueError, match="used up"):
        pml.fit(model, pml.Batches(iter(cut)), max_steps=2)


def test_ctrl_c_in_the_middle_of_a_pass_keeps_the_model_before_it(model, xs, whole):
    """Not at its end, which may be hours away."""
    count = 0

    def batches():
        nonlocal count
        for begin in range(0, N, 150):
            count += 1
            if count == 24:  # one to begin with, then seven a pass
                os.kill(os.getpid(), signal.SIGINT)
            yield xs[begin : begin + 150]

    result = pml.fit(model, pml.Batches(batches), max_steps=15, rtol=-1.0)
    assert pml.Status(int(result.status)) is pml.Status.interrupted
    assert count < 28
    np.testing.assert_allclose(result.objective[:3], whole.objective[:3], rtol=1e-10)
    assert np.isnan(result.objective[3:]).all()


def test_a_run_over_batches_resumes(model, xs, whole, tmp_path):
    run = lambda steps: pml.fit(model, pml.Batches(xs, 150), max_steps=steps, rtol=-1.0, checkpoint=tmp_path / "run")
    run(4)
    np.testing.assert_allclose(run(15).objective, whole.objective, rtol=1e-10)


def test_bad_input(model, xs):
    with pytest.raises(TypeError, match="LBFGS needs all units at once"):
        pml.fit(model, pml.Batches(xs), pml.LBFGS())
    with pytest.raises(ValueError, match=r"num_units=\.\.\.\) is wanted"):
        pml.fit(model, pml.Batches([xs]), pml.OnlineEM())
    with pytest.raises(ValueError, match=r"weights belong to Batches\(\.\.\.\)"):
        pml.fit(model, pml.Batches(xs), weights=np.ones(N))
    with pytest.raises(ValueError, match="no batch"):
        pml.fit(model, pml.Batches([]))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        pml.Batches(xs, 0)
    with pytest.raises(TypeError, match="source must be arrays, a function or an iterable; got int"):
        pml.Batches(3)
    with pytest.raises(ValueError, match="weights= is for arrays"):
        pml.Batches([xs], weights=np.ones(N))
    with pytest.raises(ValueError, match="weighted=True is for sources"):
        pml.Batches(xs, weighted=True)
    with pytest.raises(ValueError, match="infinite"):
        pml.fit(model, pml.Batches([xs[:10], np.full((10, 2), np.inf)]))
    with pytest.raises(ValueError, match="wanted"):
        pml.fit(model, pml.Batches([xs[:, :1]]))
    with pytest.raises(ValueError, match=r"decay must be greater than 0\.5"):
        pml.OnlineEM(decay=0.3)
    with pytest.raises(ValueError, match="delay must not be negative"):
        pml.OnlineEM(delay=-1.0)
    with pytest.raises(ValueError, match="a key is wanted"):
        pml.OnlineEM(10)
    with pytest.raises(ValueError, match="OnlineEM of arrays draws units"):
        pml.fit(model, xs, pml.OnlineEM())
    with pytest.raises(TypeError, match="OnlineEM needs a latent model"):
        pml.fit(pml.classifiers.softmax_regression(2, 2), (xs, np.zeros(N, int)), pml.OnlineEM(10, key=jr.key(0)))

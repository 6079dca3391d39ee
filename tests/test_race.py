"""Races: many starts on a part of the data, the best of them on all of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import probml_jax as pml
from probml_jax._race import _leaders
from probml_jax.gaussian_processes import GaussianProcess, kernels


@pytest.fixture(scope="module")
def clusters():
    centers = jnp.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])
    return jr.normal(jr.key(0), (400, 2)) + centers[jr.randint(jr.key(1), (400,), 0, 4)]


def starts_of(xs, count=6):
    build = lambda key: pml.mixtures.gaussian_mixture(key, xs, num_components=4, covariance="spherical", init="random")
    return jax.vmap(build)(jr.split(jr.key(2), count))


def test_a_race_finds_what_all_starts_together_find(clusters):
    starts = starts_of(clusters)
    everything = pml.best_of(jax.vmap(lambda m: pml.fit(m, clusters, max_steps=300))(starts))
    raced = pml.race(starts, clusters, at_once=6, max_steps=300)
    np.testing.assert_allclose(raced.final_objective, everything.final_objective, rtol=1e-6)
    one_by_one = pml.race(starts, clusters, max_steps=300)
    np.testing.assert_allclose(one_by_one.final_objective, raced.final_objective, rtol=1e-9)
    assert raced.status.ndim == 0
    assert float(pml.objective(raced.model, clusters, jnp.ones(400))) == pytest.approx(float(raced.final_objective))


def test_with_all_of_the_data_it_is_every_fit(clusters):
    starts = starts_of(clusters, 3)
    each = jax.vmap(lambda m: pml.fit(m, clusters, max_steps=40))(starts)
    raced = pml.race(starts, clusters, fraction=1.0, survivors=1, max_steps=40)
    np.testing.assert_allclose(raced.final_objective, jnp.max(each.final_objective), rtol=1e-10)
    few = clusters[:60]  # too few to be divided
    each = jax.vmap(lambda m: pml.fit(m, few, max_steps=20, rtol=-1.0))(starts)
    raced = pml.race(starts, few, max_steps=20, rtol=-1.0)
    np.testing.assert_allclose(raced.final_objective, pml.best_of(each).final_objective, rtol=1e-10)


def test_a_process_races_to_the_optimum_of_all_its_data():
    x = jr.uniform(jr.key(0), (240, 2)) * 3
    y = jnp.sin(x.sum(1)) + 0.2 * jr.normal(jr.key(1), (240,))
    gp = GaussianProcess(1.0 * kernels.RBF(jnp.ones(2)), noise=0.05)
    starts = jax.vmap(lambda key: pml.perturbed(key, gp))(jr.split(jr.key(2), 4))
    raced = pml.race(starts, (x, y), pml.LBFGS(), fraction=0.5).raise_if_failed()
    direct = pml.fit(gp, (x, y), pml.LBFGS()).raise_if_failed()
    np.testing.assert_allclose(raced.final_objective, direct.final_objective, rtol=1e-6)


def test_leaders_differ_and_failures_come_last():
    order, repeats = _leaders(jnp.array([3.0, 5.0, jnp.nan, 5.0 - 1e-7, 4.0]))
    assert order[:3].tolist() == [1, 4, 0]
    assert set(order[3:].tolist()) == {2, 3}
    assert repeats[order == 3].all()
    assert not repeats[:3].any()
    assert _leaders(jnp.array([-jnp.inf, jnp.nan, -2.0]))[0][0] == 2


def test_a_failed_start_never_wins(clusters):
    starts = starts_of(clusters, 4)
    broken = eqx.tree_at(
        lambda m: m.components.each.distribution.loc, starts, starts.components.each.distribution.loc.at[0].set(jnp.nan)
    )
    raced = pml.race(broken, clusters, survivors=3, max_steps=30)
    assert np.isfinite(raced.final_objective)
    assert pml.Status(int(raced.status)) in (pml.Status.converged, pml.Status.max_steps)


def test_what_came_to_the_same_place_is_fitted_once(clusters):
    start = starts_of(clusters, 1)
    copies = jax.tree_util.tree_map(lambda a: jnp.repeat(a, 4, axis=0) if eqx.is_array(a) else a, start)
    alone = pml.race(start, clusters, survivors=1, max_steps=300)
    raced = pml.race(copies, clusters, survivors=3, max_steps=300)
    assert pml.Status(int(raced.status)) == pml.Status(int(alone.status)) == pml.Status.converged
    np.testing.assert_array_equal(raced.objective, alone.objective)


def test_what_was_not_fitted_to_its_end_is_no_candidate(clusters):
    """Under a method that goes downhill, what rested early would stand higher than what was fitted."""
    start = starts_of(clusters, 1)
    copies = jax.tree_util.tree_map(lambda a: jnp.repeat(a, 3, axis=0) if eqx.is_array(a) else a, start)
    options = {"max_steps": 25, "rtol": -1.0}
    method = pml.Gradient(optax.sgd(-0.1))
    alone = pml.race(start, clusters, method, survivors=1, **options)
    assert alone.objective[-1] < alone.objective[method.patience], "the case is one where resting early would win"
    raced = pml.race(copies, clusters, method, survivors=3, **options)
    np.testing.assert_array_equal(raced.objective, alone.objective)


def test_padding_is_no_part_of_the_data(clusters):
    starts = starts_of(clusters, 3)
    padded = jnp.concatenate([jnp.full_like(clusters, 1e3), clusters])
    weights = jnp.concatenate([jnp.zeros(400), jnp.ones(400)])
    plain = pml.race(starts, clusters, fraction=0.5, max_steps=50, rtol=-1.0)
    other = pml.race(starts, padded, fraction=0.25, weights=weights, max_steps=50, rtol=-1.0)
    np.testing.assert_allclose(other.final_objective, plain.final_objective, rtol=1e-9)


def test_compiled_and_in_single_precision(clusters):
    narrow = lambda tree: jax.tree_util.tree_map(lambda a: a.astype("float32") if eqx.is_inexact_array(a) else a, tree)
    starts = narrow(starts_of(clusters, 3))
    run = jax.jit(lambda starts, xs: pml.race(starts, xs, at_once=3, max_steps=50))
    found = run(starts, narrow(clusters))
    assert found.final_objective.dtype == jnp.float32
    assert found.model.components.each.distribution.loc.dtype == jnp.float32
    eager = pml.race(starts, narrow(clusters), at_once=3, max_steps=50)
    # the same program inside another: only the order of sums may differ
    np.testing.assert_allclose(found.final_objective, eager.final_objective, rtol=1e-5)


def test_bad_input_is_named(clusters):
    starts = starts_of(clusters, 3)
    lone = pml.mixtures.gaussian_mixture(jr.key(0), clusters, num_components=2)
    with pytest.raises(TypeError, match="starts must be a batch of models"):
        pml.race([lone], clusters)
    with pytest.raises(ValueError, match="leading axis on every array"):
        pml.race(GaussianProcess(kernels.RBF(1.0), noise=0.1), (clusters, clusters[:, 0]), pml.LBFGS())
    with pytest.raises(ValueError, match=r"fraction must lie in \(0, 1\]; got 0"):
        pml.race(starts, clusters, fraction=0.0)
    with pytest.raises(ValueError, match="survivors must be 1 to 3"):
        pml.race(starts, clusters, survivors=4)
    with pytest.raises(ValueError, match="at_once must be at least 1"):
        pml.race(starts, clusters, at_once=0)
    with pytest.raises(TypeError, match="race cuts its part out of arrays; got Buckets"):
        pml.race(starts, pml.Buckets((clusters,), (jnp.arange(400),)))
    with pytest.raises(ValueError, match=r"wanted \(n, 2\)"):
        pml.race(starts, clusters[:, :1])

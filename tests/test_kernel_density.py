"""Kernel densities against scikit-learn and SciPy, quadrature, and their own definition; the bandwidth by gradient."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import integrate, stats
from sklearn.neighbors import KernelDensity as Theirs

import probml_jax as pml
from probml_jax.density import KERNELS, KernelDensity
from probml_jax.inference import pairs

SAME = {"gaussian": "gaussian", "exponential": "exponential", "tophat": "tophat", "epanechnikov": "epanechnikov"}
SAME |= {"triangular": "linear", "cosine": "cosine"}
rng = np.random.default_rng(0)
one = lambda n: KernelDensity.from_data(jnp.ones((n, 2)), 1.0)


@pytest.mark.parametrize("name", list(SAME))
def test_values_are_those_of_scikit_learn(name):
    for d in (1, 3, 5) if name == "cosine" else (1, 2, 5):  # theirs has another constant for cosines in even d
        xs, new = rng.normal(size=(60, d)), rng.normal(size=(40, d))
        weights = rng.uniform(0.1, 2, 60)
        theirs = Theirs(bandwidth=1.3, kernel=SAME[name]).fit(xs, sample_weight=weights).score_samples(new)
        ours = KernelDensity.from_data(xs, 1.3, name, weights)
        np.testing.assert_allclose(ours.log_probs(jnp.asarray(new)), theirs, rtol=1e-9, atol=1e-9)
    single = KernelDensity.from_data(jnp.asarray(xs, jnp.float32), 1.3, name, weights.astype("float32"))
    found = single.log_probs(jnp.asarray(new, jnp.float32))
    assert found.dtype == jnp.float32
    reached = np.isfinite(theirs) & (theirs > -15)  # next to the edge of a kernel's reach float32 has no digits
    np.testing.assert_allclose(found[reached], theirs[reached], atol=2e-3)


@pytest.mark.parametrize("name", list(KERNELS))
def test_a_kernel_has_volume_one_and_its_samples_its_moments(name):
    kde = KernelDensity.from_data(jnp.zeros((1, 2)), jnp.array([0.7, 1.4]), name)
    reach = 1.5 if KERNELS[name].in_logs is False else 25.0
    grid = np.linspace(-reach, reach, 1201)
    x = np.stack(np.meshgrid(0.7 * grid, 1.4 * grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(kde.log_probs(jnp.asarray(x)))).reshape(1201, 1201)
    np.testing.assert_allclose(integrate.simpson(integrate.simpson(density, 1.4 * grid), 0.7 * grid), 1, atol=5e-3)
    drawn = jax.vmap(kde.sample)(jr.split(jr.key(1), 4000))
    spread = [integrate.simpson(integrate.simpson(density, 1.4 * grid) * (0.7 * grid) ** 2, 0.7 * grid)]
    spread += [integrate.simpson(integrate.simpson(density, 0.7 * grid, axis=0) * (1.4 * grid) ** 2, 1.4 * grid)]
    np.testing.assert_allclose(np.var(drawn, axis=0), spread, rtol=0.15)


def test_rules_are_scipys_in_one_dimension_and_scale_with_each_column():
    xs, weights = rng.gamma(2.0, size=200), rng.uniform(0.1, 1, 200)
    for rule in ("scott", "silverman"):
        theirs = stats.gaussian_kde(xs, rule, weights)
        ours = KernelDensity.from_data(xs[:, None], rule, weights=weights)
        np.testing.assert_allclose(ours.log_probs(jnp.asarray(xs[:, None])), theirs.logpdf(xs), rtol=1e-10)
    wide = KernelDensity.from_data(np.stack([xs, 1000 * xs], axis=1))
    np.testing.assert_allclose(wide.bandwidth[1], 1000 * wide.bandwidth[0])


def test_blocks_do_not_show(monkeypatch):
    xs, new = jnp.asarray(rng.normal(size=(50, 3))), jnp.asarray(rng.normal(size=(37, 3)))
    kde = KernelDensity.from_data(xs)
    whole = kde.log_probs(new), kde.leave_one_out()
    monkeypatch.setattr(pairs, "_ENTRIES", 500)  # ten rows at a time
    jax.clear_caches()
    np.testing.assert_allclose(kde.log_probs(new), whole[0], rtol=1e-12)
    np.testing.assert_allclose(kde.leave_one_out(), whole[1], rtol=1e-12)
    alone = jax.vmap(kde.log_prob)(new)
    np.testing.assert_allclose(alone, whole[0], rtol=1e-10)
    jax.clear_caches()


def test_memory_is_that_of_a_block():
    kde = KernelDensity.from_data(jnp.zeros((20_000, 2), jnp.float32), 1.0)
    lowered = jax.jit(lambda xs: kde.log_probs(xs)).lower(jax.ShapeDtypeStruct((20_000, 2), jnp.float32))
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 40e6  # all pairs are 1.6 GB


def test_far_from_the_origin_and_from_each_other_in_float32():
    xs = rng.normal(size=(80, 2))
    shifted = jnp.asarray(xs + 5000, jnp.float32)
    exact = KernelDensity.from_data(np.asarray(shifted, np.float64), 0.4)
    found = KernelDensity.from_data(shifted, 0.4).log_probs(shifted)
    np.testing.assert_allclose(found, exact.log_probs(jnp.asarray(shifted, jnp.float64)), atol=1e-4)
    tiny = KernelDensity.from_data(jnp.asarray(xs, jnp.float32), 1e-3)  # products would cancel
    exact = KernelDensity.from_data(np.asarray(tiny.points, np.float64), 1e-3)
    np.testing.assert_allclose(tiny.leave_one_out(), exact.leave_one_out(), rtol=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "box"])
def test_leave_one_out_is_what_it_says(name):
    xs, weights = jnp.asarray(rng.normal(size=(25, 2))), jnp.asarray(rng.uniform(0.5, 2, 25))
    kde = KernelDensity.from_data(xs, 2.5, name, weights)
    others = lambda i: KernelDensity.from_data(jnp.delete(xs, i, 0), 2.5, name, jnp.delete(weights, i))
    wanted = [others(i).log_prob(xs[i]) for i in range(0, 25, 6)]
    np.testing.assert_allclose(kde.leave_one_out()[::6], wanted, rtol=1e-10)
    # a weight of zero takes a unit out of everything
    few = jnp.asarray(np.arange(25) < 20, float)
    alone = KernelDensity.from_data(xs[:20], 2.5, name, weights[:20])
    together = kde.log_likelihood(xs, few) / jnp.sum(few * kde.weights) / 25
    np.testing.assert_allclose(together, alone.log_likelihood(xs[:20], jnp.ones(20)) / 20, rtol=1e-10)


def test_fit_finds_the_best_bandwidth():
    xs = jnp.asarray(rng.normal(size=(150, 2)) * np.array([1.0, 20.0]))
    start = KernelDensity.from_data(xs, jnp.array([1.0, 1.0]))
    result = pml.fit(start, xs, pml.LBFGS()).raise_if_failed()
    best = result.model
    score = lambda h: KernelDensity(xs, best.weights, h).log_likelihood(xs, jnp.ones(150))
    for factor in ([1.05, 1.0], [0.95, 1.0], [1.0, 1.05], [1.0, 0.95]):
        assert score(best.bandwidth * jnp.array(factor)) < result.final_objective
    assert 5 < float(best.bandwidth[1] / best.bandwidth[0]) < 60
    check_grads(score, (1.3 * best.bandwidth,), 2, rtol=1e-4)
    assert pml.num_parameters(best) == 2
    single = pml.fit(KernelDensity.from_data(xs, 1.0), xs, pml.LBFGS()).model
    assert single.bandwidth.shape == ()


@pytest.mark.thorough
def test_twins_are_reported():
    xs = jnp.repeat(jnp.asarray(rng.normal(size=(20, 1))), 2, axis=0)
    result = pml.fit(KernelDensity.from_data(xs), xs, pml.LBFGS(), max_steps=300)
    assert pml.Status(int(result.status)).name == "degenerate"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KernelDensity.from_data(jnp.zeros((0, 2))), "empty"),
        (lambda: KernelDensity.from_data(jnp.zeros(3)), "one feature is"),
        (lambda: KernelDensity.from_data(jnp.array([[jnp.nan]])), "NaN"),
        (lambda: KernelDensity.from_data(jnp.zeros((3, 1))), "bandwidth must be positive"),
        (lambda: KernelDensity.from_data(jnp.ones((3, 1)), -1.0), "bandwidth must be positive"),
        (lambda: KernelDensity.from_data(jnp.ones((3, 2)), jnp.ones(3)), "bandwidth has shape"),
        (lambda: KernelDensity.from_data(jnp.ones((3, 2)), "wide"), "'scott'"),
        (lambda: KernelDensity.from_data(jnp.ones((3, 2)), 1.0, "round"), "kernel must be one of"),
        (lambda: KernelDensity.from_data(jnp.ones((3, 2)), 1.0).log_probs(jnp.ones((3, 1))), "xs has shape"),
        (lambda: pml.fit(one(3), jnp.zeros((3, 2)), pml.LBFGS()), "own points"),
        (lambda: pml.fit(one(1), jnp.ones((1, 2)), pml.LBFGS()), "at least two"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_missing_entries_are_integrated_out_by_the_gaussian_kernel():
    xs = jr.normal(jr.key(0), (60, 3))
    whole = KernelDensity.from_data(xs, jnp.array([0.3, 0.4, 0.5]))
    rest = KernelDensity.from_data(xs[:, 1:], jnp.array([0.4, 0.5]))
    holes = xs[:5].at[:, 0].set(jnp.nan)
    np.testing.assert_allclose(whole.log_probs(holes), rest.log_probs(xs[:5, 1:]), rtol=1e-10)
    np.testing.assert_allclose(whole.log_prob(jnp.full(3, jnp.nan)), 0, atol=1e-12)
    slope = jax.grad(whole.log_prob)(holes[0])
    assert slope[0] == 0
    np.testing.assert_allclose(slope[1:], jax.grad(rest.log_prob)(xs[0, 1:]), rtol=1e-9)
    ball = KernelDensity.from_data(xs, 1.0, "tophat").log_probs(xs[:2].at[0, 0].set(jnp.nan))
    assert np.isnan(ball).tolist() == [True, False]
    with pytest.raises(ValueError, match="bandwidth"):
        KernelDensity.from_data(xs, np.inf)

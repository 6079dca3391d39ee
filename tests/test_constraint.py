"""Constraints: exact inverse pairs, boundaries without NaN, and what trains."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probml_jax as pml
from probml_jax import _constraint as c

_rng = np.random.default_rng(0)
_square = _rng.normal(size=(3, 3))
INSIDE = {
    "real": (c.real, _rng.normal(size=4)),
    "positive": (c.positive, _rng.gamma(1.0, size=4)),
    "unit_interval": (c.unit_interval, _rng.uniform(size=4)),
    "simplex": (c.simplex, _rng.dirichlet(np.ones(4), 2)),
    "ordered": (c.ordered, np.sort(_rng.normal(size=(2, 4)), axis=-1)),
    "positive_definite": (c.positive_definite, (_square @ _square.T + np.eye(3))[None].repeat(2, 0)),
    "lower_triangular": (c.lower_triangular, np.linalg.cholesky(_square @ _square.T + np.eye(3))),
    "above": (c.above(2.0), 2 + _rng.gamma(1.0, size=4)),
}
BOUNDARY = {
    "positive": (c.positive, np.array([0.0, 1.0])),
    "unit_interval": (c.unit_interval, np.array([0.0, 1.0, 0.5])),
    "simplex": (c.simplex, np.array([0.0, 1.0, 0.0])),
    "ordered": (c.ordered, np.array([1.0, 1.0, 2.0])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(INSIDE))
def test_maps_are_inverse_pairs(name, dtype):
    constraint, value = INSIDE[name]
    value = jnp.asarray(value, dtype)
    tol = {"float32": 2e-6, "float64": 1e-12}[dtype]
    raw = constraint.to_raw(value)
    assert raw.dtype == value.dtype
    np.testing.assert_allclose(constraint.from_raw(raw), value, rtol=tol, atol=tol)
    np.testing.assert_allclose(
        constraint.from_raw(constraint.to_raw(constraint.from_raw(raw))), value, rtol=10 * tol, atol=10 * tol
    )


@pytest.mark.parametrize("name", list(BOUNDARY))
def test_boundary_values_survive_the_round_trip(name):
    constraint, value = BOUNDARY[name]
    np.testing.assert_array_equal(constraint.from_raw(constraint.to_raw(jnp.asarray(value))), value)


def test_a_singular_covariance_survives_without_nan():
    singular = jnp.ones((2, 2))
    there_and_back = c.positive_definite.from_raw(c.positive_definite.to_raw(singular))
    np.testing.assert_allclose(there_and_back, singular, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-20, 20), min_size=2, max_size=5))
def test_any_raw_vector_is_a_simplex(raw):
    probs = c.simplex.from_raw(jnp.asarray(raw))
    np.testing.assert_allclose(probs.sum(), 1, rtol=1e-12)
    assert (probs > 0).all()


def test_free_parameters_are_counted():
    counts = {name: constraint.count(jnp.asarray(value)) for name, (constraint, value) in INSIDE.items()}
    assert counts == {
        "real": 4,
        "positive": 4,
        "unit_interval": 4,
        "simplex": 6,
        "ordered": 8,
        "positive_definite": 12,
        "lower_triangular": 6,
        "above": 4,
    }
    xs = jr.normal(jr.key(0), (40, 3))
    sizes = {
        "full": 2 + 9 + 18,
        "diagonal": 2 + 9 + 9,
        "spherical": 2 + 9 + 3,
        "tied": 2 + 9 + 6,
        "tied_diagonal": 2 + 9 + 3,
    }
    for name, size in sizes.items():
        assert pml.num_parameters(pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, name)) == size


def test_priors_and_frozen_leaves_never_train():
    xs = jr.normal(jr.key(0), (40, 2))
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, "diagonal", estimate="map")
    mask = pml.trainable(model)
    assert not any(jax.tree_util.tree_leaves(mask.components.each.prior))
    assert mask.components.each.distribution.loc
    frozen = pml.Frozen(model.weights)
    assert not any(jax.tree_util.tree_leaves(pml.trainable(frozen)))
    result = pml.fit(model, xs, pml.LBFGS(), max_steps=5)
    before, after = model.components.each.prior, result.model.components.each.prior
    assert eqx.tree_equal(before, after)


@pytest.mark.parametrize("method", [pml.EM(), pml.LBFGS()], ids=["em", "lbfgs"])
def test_structural_zeros_are_kept(method):
    """A component of probability zero stays at zero, and nothing turns into NaN."""
    xs = jr.normal(jr.key(0), (40, 2))
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, "diagonal")
    model = eqx.tree_at(lambda m: m.weights.distribution.probs, model, jnp.array([0.5, 0.0, 0.5]))
    result = pml.fit(model, xs, method, max_steps=20)
    probs = result.model.weights.distribution.probs
    assert probs[1] == 0
    assert np.isfinite(probs).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(result.model))
    assert result.final_objective > result.objective[0]
    assert result.status == pml.Status.degenerate  # a component without data is reported


def test_the_floor_holds_for_gradients_too():
    xs = jnp.concatenate([jnp.zeros((20, 2)), jr.normal(jr.key(0), (20, 2)) + 5])
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, floor=1e-3)
    for method in (pml.EM(), pml.LBFGS()):
        result = pml.fit(model, xs, method, max_steps=100)
        dist = result.model.components.each.distribution
        smallest = jnp.linalg.eigvalsh(dist.covariance - jax.vmap(jnp.diag)(dist.floor)).min()
        assert smallest >= -1e-9
        assert np.isfinite(result.final_objective)

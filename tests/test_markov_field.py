"""Markov fields: separation against independence, three ways of learning, bad input."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from graph_enumeration import Enumeration

import probml_jax as pml
from probml_jax.graphs import ContrastiveDivergence, MarkovField, PottsGrid, PseudoLikelihood, ising_field, potts_grid

EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("d", "e")]


def _field(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    names = "abcde"
    tables = {edge: jnp.asarray(scale * rng.normal(size=(2, 2))) for edge in EDGES}
    return MarkovField(dict.fromkeys(names, 2), tables, precision=1e-4)


def test_separation_is_independence_in_the_enumerated_joint():
    field = _field()
    truth = Enumeration(field)
    for a, b in itertools.combinations(range(5), 2):
        others = [v for v in range(5) if v not in (a, b)]
        for given in itertools.chain.from_iterable(itertools.combinations(others, r) for r in range(4)):
            joint = truth.marginal(a, b, *given)
            product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
            independent = np.abs(joint * joint.sum((0, 1), keepdims=True) - product).max() < 1e-14
            names = field.names
            assert field.separated(names[a], names[b], given=[names[v] for v in given]) == independent
    assert field.neighbors("d") == ("a", "c", "e")


def test_ising_and_potts_differ_by_constants():
    ising = ising_field(EDGES, 0.3, jnp.array([0.1, -0.2, 0.3, 0.0, 0.5]))
    spins = 2 * Enumeration(ising).states - 1
    pairs = [[ising.names.index(n) for n in edge] for edge in EDGES]
    energy = 0.3 * sum(spins[:, i] * spins[:, j] for i, j in pairs) + spins @ np.array([0.1, -0.2, 0.3, 0.0, 0.5])
    np.testing.assert_allclose(ising.log_partition(), np.logaddexp.reduce(energy), rtol=1e-12)
    same = pml.graphs.potts_field(EDGES, 2, 0.6)
    np.testing.assert_allclose(
        same.log_partition() - 0.3 * len(EDGES), ising_field(EDGES, 0.3).log_partition(), rtol=1e-12
    )


def test_exact_likelihood_matches_moments_also_with_missing_entries():
    truth = _field()
    rows = truth.sample(jr.key(0), 2000)
    fitted = pml.fit(_field(1, 0.1), rows, pml.LBFGS(), max_steps=200)
    fitted.raise_if_failed()
    # at the maximum the model's pair frequencies are the data's, up to the pull of the weak prior
    for scope, table in zip(truth.scopes, fitted.model.factor_marginals(), strict=True):
        counts = np.zeros((2, 2))
        np.add.at(counts, tuple(np.asarray(rows)[:, list(scope)].T), 1 / 2000)
        np.testing.assert_allclose(table, counts, atol=1e-4)
    holes = jnp.where(jr.bernoulli(jr.key(1), 0.3, rows.shape), -1, rows)
    partial = pml.fit(_field(1, 0.1), holes, pml.LBFGS(), max_steps=200).model
    assert np.abs(partial.factor_marginals()[0] - truth.factor_marginals()[0]).max() < 0.06


def test_pseudo_likelihood_is_a_product_of_conditionals_and_learns():
    truth = _field()
    whole = Enumeration(truth)
    row = np.array([0, 1, 1, 0, 1])
    want = 0.0
    for v in range(5):
        same = np.all(np.delete(whole.states == row, v, axis=1), axis=1)
        scores = whole.scores[same]
        want += scores[row[v]] - np.logaddexp.reduce(scores)
    np.testing.assert_allclose(PseudoLikelihood(truth).log_prob(jnp.asarray(row)), want, rtol=1e-10)
    rows = truth.sample(jr.key(0), 4000)
    fitted = pml.fit(PseudoLikelihood(_field(1, 0.1)), rows, pml.LBFGS(), max_steps=200).model.field
    for table, exact in zip(fitted.factor_marginals(), truth.factor_marginals(), strict=True):
        np.testing.assert_allclose(table, exact, atol=0.04)


@pytest.mark.thorough
def test_contrastive_divergence_learns_a_coupling():
    truth = potts_grid(6, 6, num_labels=2, coupling=0.5)
    images = truth.posterior_sample(jr.key(0), 300).reshape(300, 6, 6)
    start = PottsGrid(jnp.zeros((6, 6, 2)), jnp.array(0.0), jnp.eye(2))
    method = pml.Gradient(optax.adam(0.05))
    model = ContrastiveDivergence(start, key=jr.key(1), num_sweeps=2)
    learned = pml.fit(model, images, method, max_steps=60, rtol=-1.0).model.field
    assert abs(float(learned.coupling) - 0.5) < 0.15
    pseudo = pml.fit(PseudoLikelihood(start), images, pml.LBFGS(), max_steps=60).model.field
    assert abs(float(pseudo.coupling) - 0.5) < 0.15


def test_the_gradient_of_contrastive_divergence_is_the_difference_of_statistics():
    grid = potts_grid(3, 3, num_labels=2, coupling=0.4)
    images = grid.posterior_sample(jr.key(0), 5).reshape(5, 3, 3)
    model = ContrastiveDivergence(grid, key=jr.key(1))
    slope = jax.grad(lambda g: ContrastiveDivergence(g, key=jr.key(1)).log_likelihood(images, jnp.ones(5)))(grid)
    keys = jr.split(jr.key(1), 5)
    moved = jax.vmap(grid.resample)(keys, images)
    agree = lambda x: (x[:, 1:] == x[:, :-1]).sum() + (x[:, :, 1:] == x[:, :, :-1]).sum()
    np.testing.assert_allclose(slope.coupling, float(agree(images)) - float(agree(moved)), rtol=1e-10)
    assert model.num_sweeps == 1


def test_bad_data():
    field = _field()
    with pytest.raises(ValueError, match="complete rows are wanted"):
        pml.fit(PseudoLikelihood(field), jnp.full((3, 5), -1), pml.LBFGS())
    with pytest.raises(ValueError, match="wanted whole states"):
        pml.fit(field, jnp.zeros((3, 4), int), pml.LBFGS())
    grid = potts_grid(2, 2, num_labels=2, coupling=0.1)
    with pytest.raises(ValueError, match="complete labelings"):
        pml.fit(ContrastiveDivergence(grid, key=jr.key(0)), jnp.full((3, 2, 2), -1), pml.Gradient(optax.sgd(0.1)))
    with pytest.raises(TypeError, match="EM needs a latent model"):
        pml.fit(field, jnp.zeros((3, 5), int))
    with pytest.raises(ValueError, match="share"):
        field.separated("a", "a")

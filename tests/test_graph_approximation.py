"""Approximate inference: exact on trees, bounds that hold, samplers that mix, derivatives of resting points."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graph_enumeration import Enumeration, random_graph, random_network, random_tree

import probml_jax as pml
from probml_jax.graphs import FactorGraph, InferenceStatus, ising_grid, potts_grid
from probml_jax.inference import diagnostics, mean_field
from probml_jax.inference.tree_reweighted import occurrence

FIELD = jr.normal(jr.key(0), (3, 4, 3))


def _grid(coupling=0.4, dtype="float64"):
    return potts_grid(3, 4, num_labels=3, coupling=coupling, field=FIELD.astype(dtype))


def _loopy(seed=0, strength=0.5):
    """Pairs and triples with loops, nothing forbidden."""
    graph = random_graph(seed=seed, forbidden=False)
    weak = [strength * table for table in graph.log_potentials()]
    return eqx.tree_at(lambda g: [f.log_table for f in g.factors], graph, weak)


# ------------------------------------------------------------------ belief propagation


@pytest.mark.parametrize("schedule", ["synchronous", "residual"])
def test_propagation_is_exact_on_trees(schedule):
    tree = random_tree(9)
    truth = Enumeration(tree, {"x4": 1})
    found = tree.belief_propagation({"x4": 1}, num_sweeps=200, schedule=schedule, damping=0.2)
    assert found.status == InferenceStatus.success
    np.testing.assert_allclose(found.log_partition, truth.log_partition, atol=1e-8)
    for v in range(9):
        np.testing.assert_allclose(found.marginals.probs[v], truth.marginal(v), atol=1e-8)
    best = tree.max_product({"x4": 1}, num_sweeps=200)
    np.testing.assert_array_equal(best.assignment, truth.best(1)[0][0])
    np.testing.assert_allclose(best.log_partition, truth.best(1)[1][0], rtol=1e-10)


def test_propagation_with_forbidden_entries_is_exact_on_a_polytree():
    parents = {"a": (), "b": ("a",), "c": (), "d": ("b", "c")}
    xor = jnp.zeros((2, 2, 2)).at[0, 0, 0].set(1).at[1, 1, 0].set(1).at[0, 1, 1].set(1).at[1, 0, 1].set(1)
    tables = {"a": [0.3, 0.7], "b": [[1.0, 0.0], [0.4, 0.6]], "c": [0.2, 0.8], "d": xor}
    net = pml.graphs.BayesNet(parents, tables)
    found, exact = net.belief_propagation({"d": 1}), net.marginals({"d": 1})
    for name in net.names:
        np.testing.assert_allclose(found.marginals[name], exact[name], atol=1e-9)
    np.testing.assert_allclose(found.log_partition, exact.log_evidence, atol=1e-9)
    assert found.converged


def test_the_grid_and_the_general_path_agree():
    small = _grid()
    general = FactorGraph.from_graph(small)
    fast, slow = small.belief_propagation(), general.belief_propagation()
    np.testing.assert_allclose(fast.log_partition, slow.log_partition, rtol=1e-9)
    np.testing.assert_allclose(fast.marginals.reshape(12, 3), jnp.stack(slow.marginals.probs), atol=1e-8)
    np.testing.assert_array_equal(
        small.max_product().assignment.ravel(), general.max_product(num_sweeps=200).assignment
    )
    low, slow_low = small.mean_field(num_sweeps=300), general.mean_field(num_sweeps=300)
    np.testing.assert_allclose(low.log_partition, slow_low.log_partition, rtol=1e-8)


@pytest.mark.parametrize("coupling", [2.0, 200.0], ids=["probabilities", "logs"])
def test_both_forms_of_grid_messages_are_the_general_ones(coupling):
    # before they rest, so that every sweep is compared; a site that forbids a label, and one that knows its own
    field = FIELD.at[1, 1, 2].set(-jnp.inf).at[2, 0, :2].set(-jnp.inf)
    small = potts_grid(3, 4, num_labels=3, coupling=coupling, field=field)
    fast, slow = (g.belief_propagation(num_sweeps=4) for g in (small, FactorGraph.from_graph(small)))
    np.testing.assert_allclose(fast.marginals.reshape(12, 3), jnp.stack(slow.marginals.probs), atol=1e-10)
    np.testing.assert_allclose(fast.log_partition, slow.log_partition, rtol=1e-9)
    closed = potts_grid(2, 2, num_labels=2, coupling=coupling, field=jnp.zeros((2, 2, 2)).at[0, 0].set(-jnp.inf))
    assert closed.belief_propagation().status == InferenceStatus.impossible


def test_a_run_that_does_not_rest_says_so():
    frustrated = pml.graphs.potts_field([("a", "b"), ("b", "c"), ("c", "a")], 2, -6.0, jnp.array([[0.1, 0]] * 3))
    found = frustrated.belief_propagation(num_sweeps=3)
    assert found.status == InferenceStatus.max_sweeps
    assert int(found.num_sweeps) == 3
    found.raise_if_failed()
    batch = jax.vmap(lambda j: potts_grid(3, 3, num_labels=2, coupling=j).belief_propagation(num_sweeps=60).status)
    assert batch(jnp.array([0.0, 0.1])).tolist() == [0, 0]


# ------------------------------------------------------------------ bounds


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.thorough)])
def test_bounds_hold_on_general_graphs(seed):
    graph = _loopy(seed)
    exact = Enumeration(graph).log_partition
    bounds = graph.log_partition_bounds()
    assert bounds.status.tolist() == [0, 0, 0]
    assert bounds.lower <= exact + 1e-9
    assert exact <= bounds.upper + 1e-8
    assert abs(bounds.estimate - exact) < bounds.upper - bounds.lower


@pytest.mark.parametrize("coupling", [-1.0, 0.4, 1.2])
def test_bounds_hold_on_grids(coupling):
    small = _grid(coupling)
    exact = small.log_partition()
    bounds = small.log_partition_bounds()
    assert bounds.status.tolist() == [0, 0, 0]
    assert bounds.lower <= exact <= bounds.upper
    general = FactorGraph.from_graph(small).tree_reweighted()
    assert exact <= general.log_partition + 1e-8


def test_a_tree_needs_no_reweighting():
    tree = random_tree(9)
    assert occurrence(tree.structure) == (1.0,) * 8
    np.testing.assert_allclose(tree.tree_reweighted().log_partition, tree.log_partition(), atol=1e-7)
    loop = pml.graphs.potts_field([("a", "b"), ("b", "c"), ("c", "a")], 2, 0.5)
    # each of three trees leaves one edge out
    np.testing.assert_allclose(sum(occurrence(loop.structure)), 2, rtol=1e-12)


def _opposed():
    """Neighbors that strongly disagree: updating all at once would swing to and fro."""
    return pml.graphs.ising_field([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], -2.0)


@pytest.mark.parametrize("make", [_opposed, lambda: _loopy(3, strength=1.0)], ids=["opposed", "random"])
def test_every_sweep_of_mean_field_raises_the_bound(make):
    graph = make()
    given = graph.message_potentials(graph.evidence_row(None))
    q = jax.nn.softmax(jr.normal(jr.key(0), given.unary.shape) + given.unary, axis=1)
    step = jax.jit(lambda q: mean_field.sweep(q, given, graph.structure))
    value = jax.jit(lambda q: mean_field.bound(q, given, graph.structure))
    bounds = [float(value(q))]
    for _ in range(15):
        q = step(q)
        bounds.append(float(value(q)))
    assert (np.diff(bounds) > -1e-10).all()
    assert bounds[-1] <= Enumeration(graph).log_partition


def test_a_key_breaks_the_symmetry():
    flat = ising_grid(4, 4, coupling=1.0)
    assert np.allclose(flat.mean_field().marginals, 0.5)
    assert np.abs(flat.mean_field(key=jr.key(0)).marginals - 0.5).max() > 0.4


# ------------------------------------------------------------------ derivatives of resting points


def _numeric(function, x, step=1e-5):
    flat = np.ravel(x)
    out = []
    for i in range(flat.size):
        up, down = (jnp.asarray((flat + s * step * (np.arange(flat.size) == i)).reshape(np.shape(x))) for s in (1, -1))
        out.append((function(up) - function(down)) / (2 * step))
    return np.array(out).reshape(np.shape(x))


def _small_loop():
    """A loop of pairs and a triple: two shapes of tables, so that derivatives compile quickly."""
    rng = np.random.default_rng(0)
    scopes = ["ab", "bc", "ca", "cd", "abd"]
    tables = [(tuple(s), jnp.asarray(0.5 * rng.normal(size=[2] * len(s)))) for s in scopes]
    return FactorGraph(dict.fromkeys("abcd", 2), tables)


@pytest.mark.parametrize(
    "method", ["belief_propagation", "mean_field", pytest.param("tree_reweighted", marks=pytest.mark.thorough)]
)
def test_implicit_gradients_at_a_resting_point(method):
    graph = _small_loop()

    def solve(table):
        moved = eqx.tree_at(lambda g: g.factors[0].log_table, graph, table)
        return getattr(moved, method)(num_sweeps=2000, tolerance=1e-14)

    start = graph.factors[0].log_table
    # the estimate's gradient is the belief, whatever the approximation
    estimate = jax.jit(lambda t: solve(t).log_partition)
    slope = jax.grad(estimate)(start)
    np.testing.assert_allclose(slope.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(slope.sum(1), solve(start).marginals["a"], atol=1e-7)
    np.testing.assert_allclose(slope, _numeric(estimate, start), atol=1e-7)
    belief = jax.jit(lambda t: solve(t).marginals["d"][0])
    np.testing.assert_allclose(jax.grad(belief)(start), _numeric(belief, start), atol=1e-7)


@pytest.mark.parametrize("method", ["belief_propagation", "mean_field"])
def test_implicit_gradients_on_the_grid(method):
    def belief(coupling):
        moved = eqx.tree_at(lambda g: g.coupling, _grid(), coupling)
        return getattr(moved, method)(num_sweeps=2000, tolerance=1e-14).marginals[1, 2, 0]

    compiled = jax.jit(belief)
    np.testing.assert_allclose(jax.grad(compiled)(jnp.array(0.4)), _numeric(compiled, 0.4), atol=1e-7)


# ------------------------------------------------------------------ Gibbs


@pytest.mark.parametrize("make", [_grid, _loopy, lambda: random_network(5, seed=5)], ids=["grid", "graph", "network"])
def test_gibbs_matches_exact_marginals(make):
    graph = make()
    found = graph.gibbs(jr.key(0), num_sweeps=4000, burn_in=100, num_chains=8)
    exact = graph.marginals().probs
    got = found.marginals.reshape(12, 3) if isinstance(graph, pml.graphs.PottsGrid) else found.marginals.probs
    for a, b in zip(got, exact, strict=True):
        assert np.abs(a - b).max() < 0.025
    assert found.max_rhat < 1.05
    assert 500 < found.effective_sample_size
    assert found.log_scores.shape == (8, 4000)


def test_diagnostics_know_good_chains_from_bad():
    rng = np.random.default_rng(0)
    independent = jnp.asarray(rng.normal(size=(4, 1000)))
    assert 3000 < diagnostics.effective_sample_size(independent) < 5500
    walk = np.zeros((4, 4000))
    for t in range(1, 4000):
        walk[:, t] = 0.9 * walk[:, t - 1] + rng.normal(size=4)
    # an autoregression with coefficient 0.9 is worth n (1 - 0.9) / (1 + 0.9) draws
    np.testing.assert_allclose(diagnostics.effective_sample_size(jnp.asarray(walk)), 16000 / 19, rtol=0.2)
    assert diagnostics.effective_sample_size(jnp.ones((2, 10))) == 20
    stuck = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    assert jnp.isinf(diagnostics.rhat_of_means(stuck, 100)).all()
    assert (diagnostics.rhat_of_means(jnp.array([[1.0, 0.0], [1.0, 0.0]]), 100) == 1).all()


def test_everything_is_jittable_and_float32_stays():
    small = _grid(dtype="float32")
    compiled = eqx.filter_jit(
        lambda g, key: (g.belief_propagation(num_sweeps=50), g.mean_field(), g.gibbs(key, num_sweeps=4))
    )
    messages, low, chains = compiled(small, jr.key(0))
    for array in (messages.marginals, low.marginals, chains.marginals, messages.log_partition, chains.log_scores):
        assert array.dtype == jnp.float32
    exact = _grid().belief_propagation(num_sweeps=50)
    np.testing.assert_allclose(messages.log_partition, exact.log_partition, rtol=1e-6)
    np.testing.assert_allclose(messages.marginals, exact.marginals, atol=1e-5)

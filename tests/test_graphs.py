"""Exact inference in graphs: every query and semiring against enumeration, large graphs, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graph_enumeration import Enumeration, random_graph, random_network, random_tree
from jax.test_util import check_grads

import probml_jax as pml
from probml_jax.graphs import BayesNet, FactorGraph, InferenceStatus, MarkovField, PottsGrid, ising_grid, potts_grid
from probml_jax.inference import contraction, elimination

EVIDENCE = {"b": 2, "g": 0}
TOL = {"float64": 1e-10, "float32": 2e-5}


# ------------------------------------------------------------------ every query


@pytest.mark.parametrize("evidence", [None, EVIDENCE], ids=["prior", "posterior"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_query_is_that_of_enumeration(dtype, evidence):
    graph, tol = random_graph(dtype), TOL[dtype]
    truth = Enumeration(graph, evidence)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    found = graph.marginals(evidence)
    close(found.log_evidence, truth.log_partition)
    close(graph.log_partition(evidence), truth.log_partition)
    for v, name in enumerate(graph.names):
        assert found[name].dtype == dtype
        close(found[name], truth.marginal(v))
    for scope, table in zip(graph.scopes, graph.factor_marginals(evidence), strict=True):
        close(table, truth.marginal(*scope))
    close(graph.query(["e", "a", "h"], evidence), truth.marginal(4, 0, 7))
    close(graph.entropy(evidence), truth.entropy)
    _, scores = truth.best(9)
    best, several = graph.map_assignment(evidence), graph.k_best(9, evidence)
    close(best.score, scores[0])
    close(several.score, scores)
    close(Enumeration(graph).scores[_positions(graph, several.states)], scores)
    # h has no table, so assignments come in pairs of equal score: one of each pair, and never the same one twice
    assert len(np.unique(several.states, axis=0)) == 9
    assert best["h"] == 0


def _positions(graph, states):
    return np.ravel_multi_index(np.asarray(states).T, [v.cardinality for v in graph.variables])


def test_more_assignments_than_there_are():
    graph = FactorGraph({"a": 2, "b": 2}, {("a", "b"): jnp.array([[0.3, -jnp.inf], [0.1, 0.2]])})
    found = graph.k_best(6)
    assert found.states.tolist() == [[0, 0], [1, 1], [1, 0], [-1, -1], [-1, -1], [-1, -1]]
    np.testing.assert_allclose(found.score, [0.3, 0.2, 0.1, -np.inf, -np.inf, -np.inf])
    assert found.status.tolist() == [0, 0, 0, 2, 2, 2]


def test_expectations_are_derivatives():
    graph = random_graph()
    truth = Enumeration(graph)
    rng = np.random.default_rng(1)
    values = [jnp.asarray(rng.normal(size=t.shape)) for t in graph.log_potentials()]
    row = graph.evidence_potentials(graph.evidence_row(None))
    plan = contraction.make_plan(graph.structure)
    got = elimination.expectation(plan, graph.log_potentials(), row, values)
    want = sum(np.sum(truth.marginal(*s) * np.asarray(v)) for s, v in zip(graph.scopes, values, strict=True))
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_a_thousand_patterns_of_evidence_are_one_program():
    graph = random_graph()
    rng = np.random.default_rng(0)
    rows = np.array([[rng.integers(-1, v.cardinality) for v in graph.variables] for _ in range(200)])
    compiled = []

    @eqx.filter_jit
    def ask(rows):
        compiled.append(1)
        return jax.vmap(graph.marginals_from_array)(rows)

    found = ask(jnp.asarray(rows))
    ask(jnp.asarray(rows[::-1]))
    assert len(compiled) == 1
    whole = Enumeration(graph)
    for i in range(0, 200, 10):
        agrees = np.all((rows[i] == -1) | (whole.states == rows[i]), axis=1)
        mass = np.where(agrees, whole.scores, -np.inf)
        log_evidence = np.logaddexp.reduce(mass)
        np.testing.assert_allclose(found.log_evidence[i], log_evidence, rtol=1e-10)
        if log_evidence == -np.inf:
            assert found.status[i] == InferenceStatus.impossible
            assert np.isnan(found["a"][i]).all()
        else:
            p = np.exp(mass - log_evidence)
            np.testing.assert_allclose(found["e"][i], [p[whole.states[:, 4] == j].sum() for j in range(4)], atol=1e-12)
    assert (found.status == InferenceStatus.impossible).any()


def test_derivatives_of_the_log_partition():
    graph = random_graph(forbidden=False)
    plan = contraction.make_plan(graph.structure)
    unary = graph.evidence_potentials(graph.evidence_row(EVIDENCE))
    check_grads(jax.jit(lambda t: elimination.log_partition(plan, t, unary)), (graph.log_potentials(),), 2, ["rev"])
    hard = random_graph()
    slope = jax.grad(lambda t: elimination.log_partition(plan, t, unary))(hard.log_potentials())
    assert all(np.isfinite(g).all() for g in slope)
    assert slope[0][0, 1] == 0


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_samples_match_marginals(seed):
    graph = random_graph(seed=seed)
    n = 40_000
    draws = np.asarray(graph.posterior_sample(jr.key(seed), n, EVIDENCE))
    truth = Enumeration(graph, EVIDENCE)
    pair = np.zeros((2, 4))
    np.add.at(pair, (draws[:, 0], draws[:, 4]), 1 / n)
    assert np.abs(pair - truth.marginal(0, 4)).max() < 5 * 0.5 / n**0.5
    assert (draws[:, 1] == 2).all()
    assert (truth.scores[_positions(graph, draws)] > -np.inf).all()


def test_ties_give_one_consistent_assignment():
    # four best assignments in which a and b must differ: taking each variable's best state would mix them
    graph = FactorGraph({"a": 2, "b": 2, "c": 2}, {("a", "b"): 1 - jnp.eye(2), ("b", "c"): jnp.zeros((2, 2))})
    best = graph.map_assignment()
    assert best["a"] != best["b"]
    assert float(best.score) == 1


def test_a_chosen_order_and_slices_give_the_same_answer():
    graph = potts_grid(3, 4, num_labels=3, coupling=0.7, field=jr.normal(jr.key(0), (3, 4, 3)))
    want = graph.log_partition()
    order = graph.names[::-1]
    np.testing.assert_allclose(graph.log_partition(order=order), want, rtol=1e-12)
    assert graph.cost(order=order).order == "chosen"
    budget = graph.cost().bytes // 4
    np.testing.assert_allclose(graph.log_partition(max_bytes=budget, slices=True), want, rtol=1e-12)
    sliced = graph.marginals({"x1,1": 2}, max_bytes=budget, slices=True)
    np.testing.assert_allclose(sliced["x2,3"], graph.marginals({"x1,1": 2})["x2,3"], rtol=1e-10)


def test_forty_axes_of_one_state():
    names = [f"x{i}" for i in range(40)]
    sizes = {name: 2 if i in (3, 17) else 1 for i, name in enumerate(names)}
    table = jnp.log(jnp.arange(1.0, 5.0)).reshape([sizes[n] for n in names])
    graph = FactorGraph(sizes, {tuple(names): table, ("x3",): jnp.zeros(2)})
    np.testing.assert_allclose(jnp.exp(graph.log_partition()), 10.0)
    np.testing.assert_allclose(graph.marginals()["x17"], [0.4, 0.6])
    assert graph.map_assignment()["x3"] == 1


def test_float32_keeps_its_digits_when_scores_are_large():
    # potentials of a few thousand: messages are rescaled, so only the total carries the large number
    graph = random_graph("float32")
    raised = eqx.tree_at(lambda g: [f.log_table for f in g.factors], graph, [t + 3000 for t in graph.log_potentials()])
    exact = random_graph("float64").marginals(EVIDENCE)
    np.testing.assert_allclose(raised.marginals(EVIDENCE)["e"], exact["e"], atol=2e-3)  # tables round to 1e-4 here
    np.testing.assert_allclose(graph.marginals(EVIDENCE)["e"], exact["e"], atol=1e-6)


# ------------------------------------------------------------------ large graphs, known answers


@pytest.mark.thorough
def test_a_chain_is_a_chain():
    rng = np.random.default_rng(0)
    parts = [jnp.asarray(rng.normal(size=s)) for s in ((3,), (3, 3), (6, 3))]
    graph = FactorGraph.from_chain(*parts)
    np.testing.assert_allclose(graph.log_partition(), pml.inference.chain.log_partition(*parts), rtol=1e-12)
    single, _ = pml.inference.chain.marginals(*parts)
    np.testing.assert_allclose(jnp.stack(graph.marginals().probs), single, rtol=1e-10)
    assert graph.map_assignment().states.tolist() == pml.inference.chain.viterbi(*parts)[0].tolist()
    np.testing.assert_allclose(graph.entropy(), pml.inference.chain.entropy(*parts), rtol=1e-10)


@pytest.mark.thorough
def test_a_tree_of_two_hundred_nodes():
    tree = random_tree(200)
    exact = tree.marginals()
    messages = tree.belief_propagation(num_sweeps=200)
    assert messages.converged
    np.testing.assert_allclose(messages.log_partition, exact.log_evidence, rtol=1e-10)
    for a, b in zip(exact.probs, messages.marginals.probs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert tree.cost().treewidth == 1


def _transfer_matrix(n, coupling):
    """log Z of an n x n Ising grid: columns one after another, with all 2^n states of a column."""
    spins = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)[None]) & 1)
    within = coupling * np.sum(spins[:, 1:] * spins[:, :-1], axis=1)
    log_weight = within
    kernel = [[coupling, -coupling], [-coupling, coupling]]
    for _ in range(n - 1):  # the kernel between columns is a product over rows: apply it row by row
        table = log_weight.reshape([2] * n)
        for axis in range(n):
            moved = np.moveaxis(table, axis, 0)
            table = np.moveaxis(np.stack([np.logaddexp(moved[0] + k[0], moved[1] + k[1]) for k in kernel]), 0, axis)
        log_weight = table.reshape(-1) + within
    return np.logaddexp.reduce(log_weight)


@pytest.mark.thorough
def test_ising_grids_match_the_transfer_matrix():
    critical = float(np.log(1 + np.sqrt(2)) / 2)
    grid = ising_grid(16, 16, coupling=critical)
    assert grid.cost().treewidth == 16
    np.testing.assert_allclose(grid.log_partition(), _transfer_matrix(16, critical), rtol=1e-12)
    small = lambda j: ising_grid(6, 6, coupling=j).log_partition()
    value, slope = jax.value_and_grad(small)(jnp.array(critical))
    step = 1e-5
    np.testing.assert_allclose(value, _transfer_matrix(6, critical), rtol=1e-12)
    numeric = (_transfer_matrix(6, critical + step) - _transfer_matrix(6, critical - step)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=1e-8)


def test_conversions_keep_the_distribution():
    net = random_network()
    graph = FactorGraph.from_graph(net)
    np.testing.assert_allclose(graph.log_partition(), 0, atol=1e-12)
    np.testing.assert_allclose(graph.marginals({"v0": 1})["v5"], net.marginals({"v0": 1})["v5"], rtol=1e-10)
    grid = potts_grid(2, 3, num_labels=3, coupling=0.5)
    np.testing.assert_allclose(FactorGraph.from_graph(grid).log_partition(), grid.log_partition(), rtol=1e-12)


def test_log_prob_is_normalized_and_sums_out():
    for graph in (random_graph(), random_graph(kind=MarkovField), random_network(4)):
        truth = Enumeration(graph)
        scores = jax.jit(jax.vmap(graph.log_prob))(jnp.asarray(truth.states))
        np.testing.assert_allclose(np.exp(scores), truth.probs, atol=1e-12)
        name, state = graph.names[1], 1
        got = graph.log_prob({name: state})
        np.testing.assert_allclose(np.exp(got), truth.marginal(1)[state], rtol=1e-10)
        full = dict(zip(graph.names, truth.states[truth.probs.argmax()].tolist(), strict=True))
        np.testing.assert_allclose(graph.log_prob(full), np.log(truth.probs.max()), rtol=1e-10)


# ------------------------------------------------------------------ bad input


def test_refusals_name_the_numbers_and_the_alternatives():
    grid = potts_grid(12, 12, num_labels=4, coupling=0.5)
    with pytest.raises(ValueError, match=r"treewidth 12, largest table 67,108,864 entries.*belief_propagation"):
        grid.log_partition(max_bytes=1 << 20)
    with pytest.raises(ValueError, match="too large"):
        grid.marginals(max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda g: g.marginals({"zz": 1}), "no variable 'zz'"),
        (lambda g: g.marginals({"b": 3}), r"evidence for 'b' is 3; wanted a state 0\.\.2"),
        (lambda g: g.marginals({"b": "x"}), "'b' has no state 'x'"),
        (lambda g: g.query(["a", "a"]), "named twice"),
        (lambda g: g.query("a"), "wanted a list of names"),
        (lambda g: g.k_best(0), "k must be at least 1"),
        (lambda g: g.log_prob(jnp.zeros(3, int)), "wanted 8 whole states"),
        (lambda g: g.log_prob(jnp.array([0, 5, 0, 0, 0, 0, 0, 0])), "evidence for 'b' is 5"),
        (lambda g: g.belief_propagation(damping=1.0), r"damping must be in \[0, 1\)"),
        (lambda g: g.belief_propagation(schedule="random"), "schedule must be"),
        (lambda g: g.mean_field(num_sweeps=0), "num_sweeps must be at least 1"),
    ],
)
def test_bad_questions(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(random_graph())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FactorGraph({}, {}), "at least one variable"),
        (lambda: FactorGraph({"a": 0}, {}), "one or more different states"),
        (lambda: FactorGraph({"a": 2}, {("a", "b"): jnp.zeros((2, 2))}), "no variable 'b'"),
        (lambda: FactorGraph({"a": 2}, {("a",): jnp.zeros(3)}), r"has shape \(3,\); its variables want \(2,\)"),
        (lambda: FactorGraph({"a": 2}, {("a",): jnp.array([0, jnp.nan])}), "NaN"),
        (lambda: FactorGraph({"a": 2}, {("a", "a"): jnp.zeros((2, 2))}), "different variables"),
        (lambda: PottsGrid(jnp.zeros((2, 2)), jnp.array(1.0), jnp.eye(2)), r"wanted \(h, w, k\)"),
        (lambda: PottsGrid(jnp.zeros((2, 2, 2)), jnp.array(1.0), jnp.eye(3)), "compatibility has shape"),
        (lambda: PottsGrid(jnp.zeros((2, 2, 2)), jnp.array(1.0), jnp.array([[0.0, 1], [0, 0]])), "symmetric"),
        (lambda: potts_grid(3, 3, num_labels=2, coupling=1.0, field=jnp.zeros((3, 3, 4))), "field has shape"),
        (lambda: pml.graphs.potts_field([("a", "b")], 2, jnp.ones(3)), "coupling has shape"),
    ],
)
def test_bad_graphs(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_contradictory_evidence_has_a_status():
    net = BayesNet({"a": (), "b": ("a",)}, {"a": jnp.array([1.0, 0.0]), "b": jnp.eye(2)})
    found = net.marginals({"b": 1})
    assert found.log_evidence == -jnp.inf
    assert found.status == InferenceStatus.impossible
    assert np.isnan(found["a"]).all()
    with pytest.raises(RuntimeError, match="contradictory"):
        found.raise_if_failed()
    best = net.map_assignment({"b": 1})
    assert best.states.tolist() == [-1, -1]
    with pytest.raises(RuntimeError, match="contradictory"):
        best.raise_if_failed()
    assert net.posterior_sample(jr.key(0), 2, {"b": 1}).tolist() == [[-1, -1], [-1, -1]]
    assert np.isnan(net.query(["a"], {"b": 1})).all()
    loopy = net.belief_propagation({"b": 1})
    assert loopy.status == InferenceStatus.impossible
    assert loopy.log_partition == -jnp.inf


def test_the_lines_of_the_announcement(tmp_path):
    from_file = random_network(6)
    pml.graphs.write_bif(from_file, tmp_path / "alarm.bif")
    net = pml.graphs.read_bif(tmp_path / "alarm.bif")
    key = jr.key(0)
    assert isinstance(net.d_separated("v0", "v5", given=["v3"]), bool)
    evidence_rows = net.sample(key, 1000).at[:, ::2].set(-1)
    assert net.cost().largest_table >= 2
    assert net.marginals(evidence={"v1": 1})["v1"].tolist()[1] == 1
    assert net.log_prob(net.map_assignment(evidence={"v0": 1})) <= 0
    assert jax.vmap(net.marginals_from_array)(evidence_rows)["v0"].shape[0] == 1000
    log_likelihood = jr.normal(key, (8, 8, 4))
    grid = pml.graphs.potts_grid(8, 8, num_labels=4, coupling=0.8, field=log_likelihood)
    grid.belief_propagation(num_sweeps=50).raise_if_failed()
    grid.mean_field().raise_if_failed()
    assert grid.gibbs(key, num_sweeps=10).marginals.shape == (8, 8, 4)
    with pytest.raises(ValueError, match="wanted 6 whole states"):
        net.marginals_from_array(evidence_rows)

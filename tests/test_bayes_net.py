"""Bayesian networks: what the graph says against what the distribution does, sampling, intervention, learning."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graph_enumeration import Enumeration, random_network

import probml_jax as pml
from probml_jax.graphs import BayesNet


def _sprinkler():
    parents = {"cloudy": (), "sprinkler": ("cloudy",), "rain": ("cloudy",), "wet": ("sprinkler", "rain")}
    tables = {
        "cloudy": [0.5, 0.5],
        "sprinkler": [[0.5, 0.5], [0.9, 0.1]],
        "rain": [[0.8, 0.2], [0.2, 0.8]],
        "wet": [[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]],
    }
    return BayesNet(parents, tables, {"wet": ("dry", "wet")})


def test_the_sprinkler():
    net = _sprinkler()
    found = net.marginals(evidence={"wet": "wet"})
    np.testing.assert_allclose(jnp.exp(found.log_evidence), 0.6471, atol=1e-10)
    # the published posteriors of this network (Murphy, 2001)
    np.testing.assert_allclose(found["sprinkler"][1], 0.2781 / 0.6471, atol=1e-4)
    np.testing.assert_allclose(found["rain"][1], 0.4581 / 0.6471, atol=1e-4)
    np.testing.assert_allclose(net.marginals({"wet": 1, "rain": 1})["sprinkler"][1], 0.1945, atol=5e-5)
    assert net.map_assignment({"wet": 1}).labels() == {"cloudy": "1", "sprinkler": "0", "rain": "1", "wet": "wet"}
    assert net.factorization() == "p(cloudy) p(sprinkler | cloudy) p(rain | cloudy) p(wet | sprinkler, rain)"
    assert net.num_parameters() == 9
    assert net.markov_blanket("sprinkler") == ("cloudy", "rain", "wet")
    assert net.satisfies_local_markov()


def _collider_with_offspring():
    """What is seen below a collider opens it too."""
    rng = np.random.default_rng(0)
    table = lambda n: jnp.asarray(rng.dirichlet(np.ones(2), (2,) * n))
    parents = {"v0": (), "v1": (), "v2": ("v0", "v1"), "v3": ("v2",), "v4": ("v3",), "v5": ("v1",)}
    return BayesNet(parents, {name: table(len(above)) for name, above in parents.items()})


@pytest.mark.parametrize("make", [_collider_with_offspring, lambda: random_network(6, seed=1)], ids=["fixed", "random"])
def test_d_separation_is_independence_in_the_enumerated_joint(make):
    net = make()
    truth = Enumeration(net)
    separated = 0
    for a, b in itertools.combinations(range(6), 2):
        others = [v for v in range(6) if v not in (a, b)]
        for given in itertools.chain.from_iterable(itertools.combinations(others, r) for r in range(4)):
            joint = truth.marginal(a, b, *given)
            product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
            independent = np.abs(joint * joint.sum((0, 1), keepdims=True) - product).max() < 1e-14
            names = [net.names[v] for v in given]
            assert net.d_separated(net.names[a], net.names[b], given=names) == independent
            separated += independent
    assert separated > 10  # tables are random, so nothing is independent by accident


@pytest.mark.thorough
def test_independence_by_inference_and_local_statements():
    net = random_network(6, seed=1)
    for statement in net.local_independencies():
        for other in statement.others:
            assert net.d_separated(statement.variable, other, given=statement.given)
            assert net.is_independent(statement.variable, other, statement.given)
    blanket = net.markov_blanket("v2")
    rest = [name for name in net.names if name not in (*blanket, "v2")]
    assert not rest or net.d_separated("v2", rest, given=blanket)


def test_an_intervention_cuts_arrows_and_evidence_does_not():
    net = _sprinkler()
    truth = Enumeration(net)
    states = truth.states[:, 1] == 1
    # truncated factorization: every factor but that of the variable that is set
    p_sprinkler = np.asarray(net.table("sprinkler"))[truth.states[:, 0], truth.states[:, 1]]
    cut = np.where(states, truth.probs / p_sprinkler, 0)
    rain = cut[truth.states[:, 2] == 1].sum()
    acted = net.do({"sprinkler": 1})
    np.testing.assert_allclose(acted.marginals()["rain"][1], rain, rtol=1e-10)
    np.testing.assert_allclose(acted.marginals()["rain"][1], 0.5, rtol=1e-10)
    assert net.marginals({"sprinkler": 1})["rain"][1] < 0.4
    assert acted.d_separated("sprinkler", "rain")


def test_ancestral_samples_have_the_joint():
    net = random_network(5, seed=3)
    n = 30_000
    draws = np.asarray(net.sample(jr.key(0), n))
    pair = np.zeros([net.variables[v].cardinality for v in (1, 4)])
    np.add.at(pair, (draws[:, 1], draws[:, 4]), 1 / n)
    assert np.abs(pair - Enumeration(net).marginal(1, 4)).max() < 5 * 0.5 / n**0.5


# ------------------------------------------------------------------ learning


def _uniform(net):
    flat = {name: jnp.full_like(net.table(name), 1 / net.table(name).shape[-1]) for name in net.names}
    parents = {name: tuple(net.names[p] for p in above) for name, above in zip(net.names, net.parents, strict=True)}
    return BayesNet(parents, flat)


def test_complete_data_are_counted():
    net = random_network(5, seed=2)
    rows = net.sample(jr.key(0), 400)
    fitted = pml.fit(_uniform(net), rows).raise_if_failed().model
    for v, name in enumerate(net.names):
        scope = (*net.parents[v], v)
        counts = np.zeros(net.table(name).shape)
        np.add.at(counts, tuple(np.asarray(rows)[:, list(scope)].T), 1)
        total = counts.sum(-1, keepdims=True)
        want = np.where(total > 0, counts / np.maximum(total, 1), 1 / counts.shape[-1])
        np.testing.assert_allclose(fitted.table(name), want, atol=1e-12)
    smoothed = pml.fit(_uniform(net).with_prior(2.0), rows).model
    counts = np.bincount(np.asarray(rows)[:, 0], minlength=net.variables[0].cardinality)
    np.testing.assert_allclose(smoothed.table("v0"), (counts + 1) / (counts + 1).sum(), rtol=1e-10)
    believed = pml.fit(_uniform(net).with_prior(1.0, "bayes"), rows).model
    np.testing.assert_allclose(believed.table("v0"), (counts + 1) / (counts + 1).sum(), rtol=1e-10)


def test_expected_counts_are_those_of_enumeration():
    net = random_network(5, seed=4)
    rows = np.asarray(net.sample(jr.key(1), 6))
    rows = np.where(np.random.default_rng(0).random(rows.shape) < 0.4, -1, rows)
    weights = np.array([1.0, 2.0, 0.5, 0.0, 1.0, 3.0])
    counts, bound = eqx.filter_jit(lambda n, r, w: n.e_step(r, w))(net, jnp.asarray(rows), jnp.asarray(weights))
    want, total = [0.0] * 5, 0.0
    for row, weight in zip(rows, weights, strict=True):
        seen = {net.names[v]: s for v, s in enumerate(row) if s >= 0}
        truth = Enumeration(net, seen)
        total += weight * truth.log_partition
        want = [w + weight * truth.marginal(*scope) for w, scope in zip(want, net.scopes, strict=True)]
    np.testing.assert_allclose(bound, total, rtol=1e-10)
    for got, expected in zip(counts, want, strict=True):
        np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=1e-10)


def test_em_with_a_hidden_variable_climbs_and_gradients_agree():
    truth = BayesNet(
        {"h": (), "a": ("h",), "b": ("h",), "c": ("h",)},
        {"h": [0.6, 0.4], **{name: [[0.9, 0.1], [0.2, 0.8]] for name in "abc"}},
    )
    rows = truth.sample(jr.key(0), 500).at[:, 0].set(-1)
    start = BayesNet(
        {"h": (), "a": ("h",), "b": ("h",), "c": ("h",)},
        {"h": [0.5, 0.5], **{name: [[0.7, 0.3], [0.4, 0.6]] for name in "abc"}},
    )
    em = pml.fit(start, rows, max_steps=500)
    trace = np.asarray(em.objective)[: int(em.num_steps) + 1]
    assert (np.diff(trace) > -1e-9).all()
    climbed = pml.fit(start, rows, pml.LBFGS(), max_steps=200)
    np.testing.assert_allclose(climbed.final_objective, em.final_objective, rtol=1e-6)
    np.testing.assert_allclose(em.model.table("a"), truth.table("a"), atol=0.15)


def test_a_network_too_wide_for_elimination_learns_from_complete_rows_and_refuses_others():
    wide, side, k = {}, 5, 40
    for i, j in itertools.product(range(side), range(side)):
        wide[f"x{i}{j}"] = tuple(f"x{a}{b}" for a, b in ((i - 1, j), (i, j - 1)) if min(a, b) >= 0)
    net = BayesNet(wide, {name: jnp.full((k,) * (len(above) + 1), 1 / k) for name, above in wide.items()})
    assert not net.is_affordable()
    rows = net.sample(jr.key(0), 20)
    np.testing.assert_allclose(net.log_prob(rows[0]), -25 * np.log(k), rtol=1e-12)
    counts, bound = eqx.filter_jit(lambda n, r, w: n.e_step(r, w))(net, rows, jnp.ones(20))
    np.testing.assert_allclose(bound, -20 * 25 * np.log(k), rtol=1e-12)
    np.testing.assert_allclose(counts[0][0], np.bincount(np.asarray(rows)[:, 0], minlength=k))
    with pytest.raises(ValueError, match="exact inference is too large: treewidth"):
        pml.fit(net, rows.at[3, 5].set(-1))
    with pytest.raises(ValueError, match="exact inference is too large: treewidth"):
        net.log_prob({"x00": 1})


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("parents", "tables", "message"),
    [
        ({"a": ("c",), "b": ("a",), "c": ("b",)}, None, "the graph has a cycle: .* -> .* -> .* -> "),
        ({"a": ("a",)}, None, "the graph has a cycle: a -> a"),
        ({"a": (), "b": ("x",)}, None, "'b' has the unknown parent 'x'"),
        ({"a": (), "b": "a"}, None, "wanted a tuple"),
        ({"a": (), "b": ("a", "a")}, None, "names a parent twice"),
        ({"a": ()}, {}, "there is no table for 'a'"),
        ({"a": ()}, {"a": [0.5, 0.4]}, "the table of 'a' does not sum to one: the sum is 0.9"),
        ({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.5, 0.5], [0.5, 0.6]]}, r"'b' .* states \(1,\): the sum is"),
        ({"a": ()}, {"a": [1.5, -0.5]}, "'a' has entries outside"),
        ({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [0.5, 0.5]}, "one axis per parent"),
        ({"a": (), "b": ("a",)}, {"a": [0.2, 0.3, 0.5], "b": [[0.5, 0.5]] * 2}, r"has \(2,\) parent states"),
    ],
)
def test_bad_networks(parents, tables, message):
    shape = lambda name: jnp.full((2,) * (len(parents[name]) + 1), 0.5)
    with pytest.raises(ValueError, match=message):
        BayesNet(parents, {name: shape(name) for name in parents} if tables is None else tables)


def test_bad_questions_and_data():
    net = _sprinkler()
    with pytest.raises(ValueError, match="no variable 'snow'; did you mean"):
        net.d_separated("snow", "rain")
    with pytest.raises(ValueError, match="share"):
        net.d_separated("rain", ["rain"])
    with pytest.raises(ValueError, match="names of states"):
        BayesNet({"a": ()}, {"a": [0.5, 0.5]}, {"a": ("x", "y", "z")})
    with pytest.raises(ValueError, match=r"wanted whole states \(n, 4\)"):
        pml.fit(net, jnp.zeros((5, 3), int))
    with pytest.raises(ValueError, match="evidence for 'cloudy' is 2"):
        pml.fit(net, jnp.full((5, 4), 2))
    with pytest.raises(ValueError, match="estimate must be"):
        net.with_prior(1.0, "median")
    with pytest.raises(ValueError, match="concentration must be positive"):
        net.with_prior(-1.0)
    with pytest.raises(ValueError, match="'wet' has no state 'damp'"):
        net.do({"wet": "damp"})


def test_rows_of_evidence_are_a_vmap():
    net = _sprinkler()
    rows = net.sample(jr.key(0), 30)
    rows = jnp.where(jr.bernoulli(jr.key(1), 0.5, rows.shape), rows, -1)
    found = jax.vmap(net.marginals_from_array)(rows)
    assert found["rain"].shape == (30, 2)
    np.testing.assert_allclose(found["rain"].sum(1), 1, rtol=1e-10)


def test_a_network_with_zeros_learns_under_a_prior():
    net = _sprinkler()  # dry grass is certain without sprinkler and rain
    rows = net.sample(jr.key(0), 50).at[::3, 1].set(-1)
    fitted = pml.fit(net.with_prior(1.5), rows, max_steps=20)
    fitted.raise_if_failed()
    assert (fitted.model.table("wet") > 0).all()

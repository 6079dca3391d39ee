"""A long chain in stretches of time: the same expectations as of the whole, whatever stands where it is cut."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.inference import chain
from probml_jax.inference import expectations as module
from probml_jax.inference.expectations import expectations, is_long, stretch_length
from probml_jax.sequences import Sequences

T, K = 23, 3


def _potentials(name):
    rng = np.random.default_rng(3)
    initial, moves, scores = rng.normal(size=K), rng.normal(size=(K, K)), 3 * rng.normal(size=(T, K))
    mask = np.ones(T, bool)
    if name in ("forbidden", "left_to_right"):
        moves[0, 2] = moves[2, 1] = -np.inf
    if name == "left_to_right":  # a state is left behind and can never be reached again
        moves[np.tril_indices(K, -1)] = -np.inf
        initial[1:] = -np.inf
    if name == "ragged":
        mask[15:] = False
    if name == "missing":
        mask[[0, 4, 5, 6, 7, 8, 9, 16]] = False
    if name == "nothing":
        mask[:] = False
    if name == "impossible":
        scores[9] = -np.inf
    if name == "underflow":  # probabilities lose the state that the rest of the evidence asks for
        moves[0, 1] = moves[1, 0] = moves[2, 0] = moves[2, 1] = -np.inf
        scores[:12, 0], scores[12:, 0] = 120.0, -900.0
    return initial, moves, scores, mask


def _score(part):
    return part[0]


def _collect(part, single):
    return {"visits": jnp.sum(single, axis=0), "moments": single.T @ part[1]}


def _whole(initial, moves, scores, mask, features):
    found = chain.beliefs(initial, moves, scores, mask)
    return found.log_partition, found.single[0], found.pairs, _collect((scores, features), found.single)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "name", "plain forbidden left_to_right ragged missing nothing impossible underflow".split(), ids=str
)
def test_stretches_make_no_difference(name, dtype):
    initial, moves, scores, mask = (jnp.asarray(a) for a in _potentials(name))
    narrow = lambda *arrays: [a.astype(dtype) for a in arrays]
    features = jr.normal(jr.key(0), (T, 2), "float64")
    want = _whole(initial, moves, scores, mask, features)
    initial, moves, scores, features = narrow(initial, moves, scores, features)
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 2e-5, "atol": 1e-5}
    for length in (1, 4, 8, T, 40):  # 4 leaves a stretch of padding alone when ragged
        run = jax.jit(lambda *a, n=length: expectations(*a[:2], _score, _collect, a[2:4], a[4], n))
        found = run(initial, moves, scores, features, mask)
        assert found.log_partition.dtype == jnp.dtype(dtype)
        for a, b in zip(jax.tree_util.tree_leaves(tuple(found)), jax.tree_util.tree_leaves(want), strict=True):
            np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.thorough
def test_gradients_and_batches_go_through():
    initial, moves, scores, mask = (jnp.asarray(a) for a in _potentials("missing"))
    features = jr.normal(jr.key(0), (T, 2))

    def through(function):
        def value(scores, moves):
            log_partition, first, pairs, collected = function(initial, moves, scores, mask, features)
            return log_partition + first[0] + pairs[0, 1] ** 2 + jnp.sum(collected["moments"] ** 2)

        return value

    cut = lambda a, b, c, m, f: expectations(a, b, _score, _collect, (c, f), m, 5)
    found = jax.grad(through(cut), argnums=(0, 1))(scores, moves)
    want = jax.grad(through(_whole), argnums=(0, 1))(scores, moves)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    batch = jnp.stack([scores, -scores, scores.at[3].set(-jnp.inf)])  # one of them impossible
    together = jax.vmap(lambda c: cut(initial, moves, c, mask, features))(batch)
    for i in range(3):
        alone = _whole(initial, moves, batch[i], mask, features)
        for a, b in zip(jax.tree_util.tree_leaves(tuple(together)), jax.tree_util.tree_leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-10, atol=1e-12)


def test_stretches_are_of_one_length():
    for t, k in ((100_000, 8), (1_000_003, 8), (5_000, 400)):
        length = stretch_length(t, k, 4)
        assert -(-t // length) * length - t < -(-t // length)  # less than a step of padding for each
    assert is_long(1_000_000, 8)
    assert not is_long(100_000, 8)


@pytest.mark.parametrize(
    "emission", ["gaussian", *[pytest.param(e, marks=pytest.mark.thorough) for e in ("categorical", "autoregressive")]]
)
def test_a_long_e_step_is_an_e_step(emission, monkeypatch):
    """Ragged, with gaps, known states and weights; one sequence and several."""
    monkeypatch.setattr(module, "_STRETCH_BYTES", 1)  # stretches of 256 steps
    monkeypatch.setattr(module, "_MOST_NUMBERS", 1)
    n, t = 3, 700
    xs = jnp.cumsum(jr.normal(jr.key(0), (n, t, 2)), axis=1) / 10
    xs = xs.at[0, 100:300].set(jnp.nan).at[1, 5, 0].set(jnp.nan)
    lengths = jnp.array([t, 600, 40], jnp.int32)
    build = {
        "gaussian": lambda: pml.sequences.gaussian_hmm(jr.key(1), (xs, lengths), 3),
        "autoregressive": lambda: pml.sequences.autoregressive_hmm(jr.key(1), (xs, lengths), 3),
        "categorical": lambda: pml.sequences.categorical_hmm(jr.key(1), (labels, lengths), 3, 4),
    }
    labels = jr.randint(jr.key(2), (n, t), -1, 4)
    hmm = build[emission]()
    observed = labels if emission == "categorical" else xs
    states = jnp.full((n, t), -1).at[:, ::7].set(1)
    for data, weights in (
        (Sequences(observed, lengths, states), jnp.array([1.0, 0.5, 2.0])),
        (Sequences(observed[1:2], lengths[1:2], None), jnp.array([0.7])),
    ):
        stats, bound = hmm.e_step(data, weights)
        monkeypatch.setattr(pml.sequences.hmm, "is_long", lambda t, k: False)
        want, whole = hmm.e_step(data, weights)
        monkeypatch.undo()
        monkeypatch.setattr(module, "_STRETCH_BYTES", 1)
        monkeypatch.setattr(module, "_MOST_NUMBERS", 1)
        np.testing.assert_allclose(bound, whole, rtol=1e-10)
        for a, b in zip(jax.tree_util.tree_leaves(stats), jax.tree_util.tree_leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)

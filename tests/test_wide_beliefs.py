"""Beliefs by wide numbers: where a chain is cut makes no difference, and what is not kept does not show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml_jax.inference import wide_beliefs as module
from probml_jax.inference.chain import beliefs
from probml_jax.inference.messages import make_chain
from probml_jax.inference.stretches import in_stretches, joined
from probml_jax.inference.wide_beliefs import wide_expectations

T, K = 11, 3


def _chain(varying, scale=1.0):
    rng = np.random.default_rng(0)
    transition = scale * rng.normal(size=(T - 1, K, K) if varying else (K, K))
    transition[..., 2, 0] = -np.inf
    mask = np.arange(T) < 9
    mask[4] = False
    parts = rng.normal(size=K), transition, scale * rng.normal(size=(T, K))
    return make_chain(*[jnp.asarray(a) for a in parts], jnp.asarray(mask))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("varying", [False, True])
def test_stretches_make_no_difference(varying, parallel, monkeypatch):
    given = _chain(varying)
    whole = beliefs(*given[:3], given.exists)  # by probabilities
    for length in (1, 4, T, 100):
        monkeypatch.setattr(module, "_STRETCH", length)
        for found, wanted in zip(wide_expectations(given, parallel), whole, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def test_derivatives_go_through_stretches(monkeypatch):
    """Second derivatives of the log-partition are first ones of these beliefs."""
    given = _chain(False)

    def total(scores):
        log_partition, single, pairs = wide_expectations(given._replace(log_likelihood=scores), False)
        return log_partition + jnp.sum(jnp.sin(single)) + jnp.sum(jnp.cos(pairs))

    slopes = []
    for length in (4, 100):
        monkeypatch.setattr(module, "_STRETCH", length)
        slopes.append(jax.grad(total)(given.log_likelihood))
    np.testing.assert_allclose(*slopes, rtol=1e-11, atol=1e-13)
    assert np.all(np.isfinite(slopes[0]))


def test_a_batch_is_a_loop(monkeypatch):
    monkeypatch.setattr(module, "_STRETCH", 4)
    given = _chain(False)
    scores = jnp.stack([given.log_likelihood, given.log_likelihood[::-1], 300 * given.log_likelihood])
    one = lambda scores: wide_expectations(given._replace(log_likelihood=scores), False)
    for found, each in zip(jax.vmap(one)(scores), zip(*map(one, scores), strict=True), strict=True):
        np.testing.assert_allclose(found, jnp.stack(each), rtol=1e-12, atol=1e-14)


def test_memory_does_not_grow_with_messages_backward():
    """Two arrays of messages forward and one of marginals: three of the chain's size, and little else."""
    t, k = 100_000, 8
    size = t * k * 4
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((k,), (k, k), (t, k))]
    run = jax.jit(lambda *a: wide_expectations(make_chain(*a, None), False))
    assert run.lower(*shapes).compile().memory_analysis().temp_size_in_bytes < 5 * size


def test_what_is_cut_is_joined_again():
    tree = {"a": jnp.arange(10.0), "b": jnp.arange(20.0).reshape(10, 2)}
    cut = in_stretches(tree, 4)
    assert cut["a"].shape == (3, 4)
    assert cut["b"][-1, -1].tolist() == [0.0, 0.0]
    for name, a in joined(cut, 10).items():
        np.testing.assert_array_equal(a, tree[name])

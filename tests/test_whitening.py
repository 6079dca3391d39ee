"""Squared lengths of whitened differences: every order of vmap is the formula, and so are its derivatives."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from probml_jax.inference.whitening import squared_length

D, K = 3, 4


def _formula(whiten, loc, x):
    return jnp.sum((whiten @ (x - loc)) ** 2)


def _arguments(n: int, dtype: str = "float64"):
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape).astype(dtype))
    return draw(K, D, D), draw(K, D), draw(n, D)


def _everywhere(function, order):
    """`function` vmapped over events and members, the inner one first."""
    for axes in order:
        function = jax.vmap(function, axes)
    return function


EVENTS, MEMBERS = (None, None, 0), (0, 0, None)


@pytest.mark.parametrize("n", [5, 700], ids=["few", "many"])
@pytest.mark.parametrize("order", [(EVENTS, MEMBERS), (MEMBERS, EVENTS)], ids=["members_outside", "events_outside"])
def test_events_and_members_in_either_order(order, n):
    given = _arguments(n)
    for transform in (lambda f: f, jax.jit):
        found = transform(_everywhere(squared_length, order))(*given)
        np.testing.assert_allclose(found, _everywhere(_formula, order)(*given), rtol=1e-12)
    single = _everywhere(squared_length, order)(*_arguments(n, "float32"))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, found, rtol=2e-5)


@pytest.mark.parametrize("first", list(itertools.product((0, None), repeat=3))[:-1], ids=str)
def test_any_arguments_may_be_batched_once_and_twice(first):
    whiten, loc, x = _arguments(K)
    pick = lambda axes: tuple(a if axis == 0 else a[0] for a, axis in zip((whiten, loc, x), axes, strict=True))
    np.testing.assert_allclose(
        jax.vmap(squared_length, first)(*pick(first)), jax.vmap(_formula, first)(*pick(first)), rtol=1e-12
    )
    # a second axis (restarts, say) on top of those of the first, for every choice of what it runs over
    pile = lambda a: jnp.stack([a, 2 * a])
    for second in list(itertools.product((0, None), repeat=3))[:-1]:
        given = [pile(a) if axis == 0 else a for a, axis in zip(pick(first), second, strict=True)]
        found = jax.vmap(jax.vmap(squared_length, first), second)(*given)
        np.testing.assert_allclose(found, jax.vmap(jax.vmap(_formula, first), second)(*given), rtol=1e-12)


def test_restarts_of_stacks_of_many_events():
    given = [jnp.stack([a, a + 1]) for a in _arguments(300)]
    for order in ((EVENTS, MEMBERS), (MEMBERS, EVENTS)):
        both = [jax.vmap(_everywhere(f, order))(*given) for f in (squared_length, _formula)]
        np.testing.assert_allclose(*both, rtol=1e-12)


@pytest.mark.parametrize("order", [(), (EVENTS, MEMBERS), (MEMBERS, EVENTS)], ids=["one", "members", "events"])
def test_derivatives_of_both_modes_and_orders(order):
    given = _arguments(300) if order else tuple(a[0] for a in _arguments(1))
    total = lambda f: lambda *given: jnp.sum(jnp.sin(_everywhere(f, order)(*given)))
    for ours, theirs in zip(*(jax.grad(total(f), (0, 1, 2))(*given) for f in (squared_length, _formula)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    if not order:
        check_grads(lambda *given: squared_length(*map(jnp.asarray, given)), given, order=2)

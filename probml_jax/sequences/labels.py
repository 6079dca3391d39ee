"""Leaves over the labels of states: their log-probabilities, and whether they fit a chain of k states."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._estimate import AbstractEstimate
from .._stack import AbstractStack
from .._validate import check_simplex
from ..distributions.categorical import Categorical


def log_probs(leaf: AbstractEstimate, k: int) -> Float[Array, "k"]:
    """Log-probabilities of k labels (expected ones under `Bayes`)."""
    return jax.vmap(leaf.expected_log_prob)(jnp.arange(k))


def check_chain(initial: AbstractEstimate, transition: AbstractStack) -> None:
    """Raise `ValueError` unless both are over as many labels as the transition has rows, and these sum to one."""
    k = transition.size
    for name, leaf in (("initial", initial), ("transition", transition.member(0))):
        point = eqx.filter_eval_shape(lambda leaf: leaf.point(), leaf)
        if isinstance(point, Categorical) and point.probs.shape != (k,):
            raise ValueError(f"{name} is over labels of shape {point.probs.shape}; {k} rows of transition want ({k},).")
    check_rows("initial", initial)
    check_rows("transition", transition)


def check_rows(name: str, part: PyTree) -> None:
    """Raise `ValueError` if a categorical distribution does not sum to one: a stack is built where nobody can look."""
    is_row = lambda a: isinstance(a, Categorical)
    for row in filter(is_row, jax.tree_util.tree_leaves(part, is_leaf=is_row)):
        check_simplex(name, row.probs)

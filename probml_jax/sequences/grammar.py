"""What may follow what: hard constraints on sequences of labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool


class Constraints(NamedTuple):
    """Labels that may come first, label pairs that may follow each other, labels that may come last."""

    start: Bool[Array, "k"]
    transition: Bool[Array, "k k"]
    end: Bool[Array, "k"]


def as_constraints(given: Any, num_labels: int) -> Constraints | None:
    """`Constraints`, or a matrix of allowed transitions alone."""
    if given is None:
        return None
    if not isinstance(given, Constraints):
        free = jnp.ones(num_labels, bool)
        given = Constraints(free, jnp.asarray(given), free)
    given = Constraints(*(jnp.asarray(a).astype(bool) for a in given))
    k = num_labels
    for name, array, shape in zip(given._fields, given, [(k,), (k, k), (k,)], strict=True):
        if array.shape != shape:
            raise ValueError(f"constraints: {name} has shape {array.shape}; {k} labels want {shape}.")
    return given


def _parse(label: str, prefixes: str) -> tuple[str, str]:
    head, _, kind = label.partition("-")
    if head not in prefixes.split() or (head != "O" and not kind) or (head == "O" and kind):
        wanted = ", ".join("O" if p == "O" else f"{p}-TYPE" for p in prefixes.split())
        raise ValueError(f"label {label!r} does not belong to the scheme; wanted {wanted}.")
    return head, kind


def bio_constraints(labels: Sequence[str]) -> Constraints:
    """Labels O, B-X, I-X, where I-X must continue B-X or I-X.

    >>> bio_constraints(["O", "B-NP", "I-NP"]).transition.tolist()
    [[True, True, False], [True, True, True], [True, True, True]]
    """
    parsed = [_parse(label, "O B I") for label in labels]
    inside = np.array([head == "I" for head, _ in parsed])
    kinds = [kind for _, kind in parsed]
    continues = np.array([[a == b and head != "O" for b in kinds] for a, (head, _) in zip(kinds, parsed, strict=True)])
    free = np.ones(len(labels), bool)
    return Constraints(jnp.asarray(~inside), jnp.asarray(~inside[None, :] | continues), jnp.asarray(free))


def bilou_constraints(labels: Sequence[str]) -> Constraints:
    """Labels O, B-X, I-X, L-X, U-X, where a span is U-X or B-X (I-X)* L-X.

    >>> rules = bilou_constraints(["O", "B-X", "I-X", "L-X", "U-X"])
    >>> rules.transition[1].tolist()  # after B-X: inside or last
    [False, False, True, True, False]
    """
    parsed = [_parse(label, "O B I L U") for label in labels]
    opens = np.array([head in "BI" for head, _ in parsed])  # a span is open after it
    needs = np.array([head in "IL" for head, _ in parsed])  # a span must be open before it
    same = np.array([[a == b for _, b in parsed] for _, a in parsed])
    transition = (opens[:, None] == needs[None, :]) & (~opens[:, None] | same)
    return Constraints(jnp.asarray(~needs), jnp.asarray(transition), jnp.asarray(~opens))


def impossible(constraints: Constraints, lengths: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Numbers of the sequences that no path satisfies, given the labels `sets (n, t, k)` each step may have."""
    start, moves, end = (np.asarray(a) for a in constraints)
    reached = start[None] & sets[:, 0]
    final = reached.copy()
    for s in range(1, sets.shape[1]):
        reached = ((reached.astype(np.float32) @ moves) > 0) & sets[:, s]
        final = np.where((lengths > s)[:, None], reached, final)
    return np.flatnonzero(~(final & end[None]).any(axis=1))

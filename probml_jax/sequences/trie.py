"""Counts of n-grams as a trie of sorted arrays: built by sorting, read by binary search."""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


class Level(NamedTuple):
    """All n-grams of one order, sorted by (prefix, last word). An n-gram's id is its place in this order."""

    starts: Int[Array, "prefixes_plus_1"]
    """Children of prefix i are `starts[i]:starts[i + 1]`."""
    words: Int[Array, "n"]


class Counted(NamedTuple):
    """What counting finds of one order (NumPy, on the host)."""

    parent: np.ndarray
    """Id of the prefix (all words but the last), one order down."""
    word: np.ndarray
    suffix: np.ndarray
    """Id of the suffix (all words but the first), one order down."""
    count: np.ndarray
    begins: np.ndarray
    """Whether the n-gram starts with the start symbol."""


def count_ngrams(stream: np.ndarray, first: np.ndarray, order: int, num_symbols: int, start: int) -> list[Counted]:
    """Distinct n-grams of orders 1..order of a stream of symbols; none reaches across a `first` symbol of a sequence.

    Order 1 is dense: its ids are the symbols. Cost: one sort of the stream per order.
    """
    size = stream.size
    symbols = np.arange(num_symbols)
    zeros = np.zeros(num_symbols, np.int64)
    counts = np.bincount(stream, minlength=num_symbols)
    levels = [Counted(zeros, symbols, zeros, counts, symbols == start)]
    here = stream.astype(np.int64)  # id of the n-gram of the current order that ends at each position; -1: none
    room = np.arange(size) - np.maximum.accumulate(np.where(first, np.arange(size), 0))
    for n in range(2, order + 1):
        positions = np.flatnonzero(room >= n - 1)
        prefix, word = here[positions - 1], stream[positions]
        keys, place, counts = np.unique(prefix * num_symbols + word, return_inverse=True, return_counts=True)
        suffix = np.empty(keys.size, np.int64)
        suffix[place] = here[positions]
        parent = keys // num_symbols
        levels.append(Counted(parent, keys % num_symbols, suffix, counts, levels[-1].begins[parent]))
        here = np.full(size, -1)
        here[positions] = place
    return levels


def to_levels(counted: list[Counted]) -> tuple[Level, ...]:
    """The searchable part of orders 2.., as JAX arrays."""
    levels = []
    for below, level in itertools.pairwise(counted):
        starts = np.searchsorted(level.parent, np.arange(below.word.size + 1))
        levels.append(Level(jnp.asarray(starts, jnp.int32), jnp.asarray(level.word, jnp.int32)))
    return tuple(levels)


def children(level: Level, parent: Int[Array, "*b"], word: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """Ids of the n-grams (prefix, word); -1 where there is none or the prefix is itself -1. Any shape at once."""
    size = level.words.shape[0]
    if size == 0:
        return jnp.full(jnp.shape(word), -1, jnp.int32)
    known = parent >= 0
    safe = jnp.where(known, parent, 0)
    low, stop = level.starts[safe], level.starts[safe + 1]
    high = stop
    for _ in range(size.bit_length()):  # invariant: words[:low] < word <= words[high:], within the prefix's children
        middle = (low + high) // 2
        right = (low < high) & (level.words[jnp.minimum(middle, size - 1)] < word)
        low, high = jnp.where(right, middle + 1, low), jnp.where(right | (low >= high), high, middle)
    found = known & (low < stop) & (level.words[jnp.minimum(low, size - 1)] == word)
    return jnp.where(found, low, -1).astype(jnp.int32)

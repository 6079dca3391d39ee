"""Probabilities of n-grams from their counts, in back-off form. Arrays on the host; every order by a few sums."""

import numpy as np

from .trie import Counted

Estimated = tuple[list[np.ndarray], list[np.ndarray]]  # per order: log-probability, log back-off weight


def _log(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(x)


def adjusted_counts(levels: list[Counted]) -> list[np.ndarray]:
    r"""Counts of the highest order as they are; below it $N_{1+}(\bullet\, w)$, the number of distinct words before.

    What starts with the start symbol has nothing before it and keeps its count; so does what has only ever begun a
    sequence.
    """
    out = [levels[-1].count.astype(float)]
    for level, above in zip(levels[-2::-1], levels[:0:-1], strict=True):
        before = np.bincount(above.suffix, minlength=level.word.size)
        kept = level.begins | ((before == 0) & (level.count > 0))
        out.insert(0, np.where(kept, level.count, before).astype(float))
    return out


def modified_discounts(counts: np.ndarray) -> np.ndarray:
    """Chen and Goodman's discounts of counts 1, 2 and 3+, from the numbers of n-grams counted 1 to 4 times.

    Tiny or character data may lack some of those; then one absolute discount, and 0.5 when even that is undefined.
    """
    n = [float(np.sum(counts == c)) for c in (1, 2, 3, 4)]
    if min(n) > 0:
        y = n[0] / (n[0] + 2 * n[1])
        modified = np.array([c - (c + 1) * y * n[c] / n[c - 1] for c in (1, 2, 3)])
        if np.all(modified > 0) and np.all(modified < [1, 2, 3]):
            return modified
    return np.full(3, absolute_discount(counts))


def absolute_discount(counts: np.ndarray) -> float:
    """Ney's estimate n1 / (n1 + 2 n2), kept inside (0, 1)."""
    once, twice = float(np.sum(counts == 1)), float(np.sum(counts == 2))
    return once / (once + 2 * twice) if once > 0 and twice > 0 else 0.5


def kneser_ney(
    levels: list[Counted], num_outcomes: int, start: int, discount: float | None, modified: bool, unigrams: bool
) -> Estimated:
    r"""Interpolated Kneser-Ney, $p(w|h) = (a(hw) - D)_+ / \sum_x a(hx) + \gamma(h)\, p(w|h')$.

    `unigrams` continues the interpolation to the uniform distribution, so that nothing is impossible.
    Reference: Chen and Goodman (1999); Heafield et al. (2013) for the start symbol.
    """
    log_probs, backoffs = [], []
    lower = np.array([1 / num_outcomes])
    for n, (level, counts) in enumerate(zip(levels, adjusted_counts(levels), strict=True), 1):
        if n == 1:
            counts = np.where(level.word == start, 0, counts)
        seen = counts[counts > 0]
        if discount is not None:
            steps = np.full(3, discount)
        else:
            steps = modified_discounts(seen) if modified else np.full(3, absolute_discount(seen))
        if n == 1 and not unigrams:
            steps = np.zeros(3)
        off = np.where(counts > 0, steps[np.clip(counts, 1, 3).astype(int) - 1], 0)
        size = 1 if n == 1 else levels[n - 2].word.size
        total = np.bincount(level.parent, counts, minlength=size)
        removed = np.bincount(level.parent, off, minlength=size)
        safe = np.where(total > 0, total, 1)
        weight = np.where(total > 0, removed / safe, 1)
        probs = (counts - off) / safe[level.parent] + weight[level.parent] * lower[level.suffix]
        if n == 1:
            probs = np.where(level.word == start, 0, probs)
        else:
            backoffs.append(_log(weight))
        log_probs.append(_log(probs))
        lower = probs
    return log_probs, backoffs


def add_k(levels: list[Counted], num_outcomes: int, start: int, k: float) -> Estimated:
    r"""$p(w|h) = (c(hw) + k) / (c(h) + k V)$ of the highest order; `k = 0` is maximum likelihood.

    In back-off form the rest of the mass goes straight to the uniform distribution: the orders between have no
    probabilities of their own. Maximum likelihood leaves no rest after a history that has been seen; after one that
    has not, the longest part of it that has been seen decides.
    """
    log_probs, backoffs = [], []
    for n, level in enumerate(levels, 1):
        counts = np.where(level.word == start, 0, level.count).astype(float) if n == 1 else level.count.astype(float)
        size = 1 if n == 1 else levels[n - 2].word.size
        total = np.bincount(level.parent, counts, minlength=size)
        top = n == len(levels) or k == 0
        mass = total + k * num_outcomes
        probs = (counts + k) / np.where(mass > 0, mass, 1)[level.parent]
        probs = probs if top else np.full(counts.size, 1 / num_outcomes)
        if n == 1:
            probs = np.where(level.word == start, 0, probs)
        else:
            rest = k * num_outcomes / np.where(mass > 0, mass, 1) if top else np.ones(size)
            backoffs.append(_log(np.where(total > 0, rest, 1)))
        log_probs.append(_log(probs))
    return log_probs, backoffs

"""Texts as whole numbers: what they stand for, and the forms in which they come."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._validate import is_concrete


class Symbols(eqx.Module):
    """Which integer stands for what."""

    vocab_size: int = eqx.field(static=True)
    open_vocabulary: bool = eqx.field(static=True)
    boundaries: bool = eqx.field(static=True)

    @property
    def unknown(self) -> int:
        return self.vocab_size if self.open_vocabulary else -1

    @property
    def end(self) -> int:
        return self.vocab_size + self.open_vocabulary if self.boundaries else -1

    @property
    def start(self) -> int:
        return self.end + 1 if self.boundaries else -1

    @property
    def outcomes(self) -> int:
        return self.vocab_size + self.open_vocabulary + self.boundaries

    @property
    def total(self) -> int:
        return self.outcomes + self.boundaries


def is_stream(tokens: Any) -> bool:
    """Whether this is one row of tokens rather than a list of sequences."""
    if isinstance(tokens, (np.ndarray, jax.Array)):
        return tokens.ndim == 1
    return len(tokens) > 0 and np.ndim(tokens[0]) == 0


def as_stream(sequences: Any, symbols: Symbols) -> tuple[np.ndarray, np.ndarray]:
    """All sequences in one row, with boundaries, and where each begins."""
    arrays = [np.asarray(s) for s in sequences]
    if not arrays or sum(a.size for a in arrays) == 0:
        raise ValueError("tokens is empty: at least one token is wanted.")
    if any(a.ndim != 1 or (a.size and not np.issubdtype(a.dtype, np.integer)) for a in arrays):
        raise ValueError(
            "tokens must be whole numbers: one sequence (t,) or a list of them. A Vocabulary makes numbers of words."
        )
    flat = np.concatenate([a.astype(np.int64) for a in arrays])
    inside = (flat >= 0) & (flat < symbols.vocab_size)
    if not symbols.open_vocabulary and not inside.all():
        raise ValueError(
            f"tokens holds {flat[~inside][0]}, outside 0..{symbols.vocab_size - 1}; pass open_vocabulary=True to "
            "count such tokens as unknown words."
        )
    flat = np.where(inside, flat, symbols.unknown)
    lengths = np.array([a.size for a in arrays])
    extra = 2 * symbols.boundaries
    begins = np.cumsum(np.append(0, lengths[:-1] + extra))
    stream = np.empty(flat.size + extra * len(arrays), np.int64)
    where = np.arange(flat.size) + np.repeat(np.arange(len(arrays)) * extra + extra // 2, lengths)
    if extra:
        stream[begins], stream[begins + lengths + 1] = symbols.start, symbols.end
    stream[where] = flat
    first = np.zeros(stream.size, bool)
    first[begins[lengths + extra > 0]] = True
    return stream, first


def whole_numbers(tokens: Any) -> Array:
    """Tokens as an array; `ValueError` for anything but whole numbers (nothing at all is a sequence too)."""
    tokens = np.asarray(tokens) if is_concrete(tokens) and not isinstance(tokens, jax.Array) else jnp.asarray(tokens)
    if tokens.size and not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ValueError(f"tokens must be whole numbers; got {tokens.dtype}. A Vocabulary makes numbers of words.")
    return jnp.asarray(tokens.astype(np.int32))


def as_rows(tokens: Any, length: Any) -> tuple[Array, Array]:
    """One sequence `(t,)` or a batch `(n, t)`, and how many tokens count; a list of sequences is padded."""
    if isinstance(tokens, list | tuple) and len(tokens) and np.ndim(tokens[0]) > 0:
        if length is not None:
            raise ValueError("length belongs to a padded array; the sequences of a list have their own.")
        rows = [np.asarray(whole_numbers(row)) for row in tokens]
        if any(row.ndim != 1 for row in rows):
            raise ValueError("tokens must be one sequence (t,), a batch (n, t) or a list of sequences.")
        padded = np.zeros((len(rows), max(1, *(row.size for row in rows))), np.int32)
        for place, row in zip(padded, rows, strict=True):
            place[: row.size] = row
        return jnp.asarray(padded), jnp.asarray([row.size for row in rows], jnp.int32)
    tokens = whole_numbers(tokens)
    if tokens.ndim not in (1, 2):
        raise ValueError(f"tokens has shape {tokens.shape}; wanted one sequence (t,) or a batch (n, t).")
    if length is None:
        return tokens, jnp.full(tokens.shape[:-1], tokens.shape[-1], jnp.int32)
    length = jnp.asarray(length)
    if length.shape != tokens.shape[:-1] or not jnp.issubdtype(length.dtype, jnp.integer):
        wanted = f"whole numbers of shape {tokens.shape[:-1]}"
        raise ValueError(f"length is {length.dtype} of shape {length.shape}; wanted {wanted}.")
    if is_concrete(length) and length.size and not 0 <= int(length.min()) <= int(length.max()) <= tokens.shape[-1]:
        worst = int(length.min()) if int(length.min()) < 0 else int(length.max())
        raise ValueError(f"length is {worst}; the sequence has {tokens.shape[-1]} tokens.")
    return tokens, length.astype(jnp.int32)

"""n-gram language models over integer tokens."""

from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .._special import pairwise_dot
from .._typing import PRNGKey, Scalar
from .._validate import is_concrete
from ..inference.chain import autoregress
from .data import exists
from .kneser_ney import add_k, kneser_ney
from .trie import Level, children, count_ngrams, to_levels

_SMOOTHINGS = ("ml", "add_k", "kneser_ney", "modified_kneser_ney")


class NGram(eqx.Module):
    r"""$p(w_{1:t}) = \prod_s p(w_s \mid w_{s-n+1:s-1})$ with probabilities in back-off form.

    $$p(w|h) = \begin{cases} \text{its own} & hw \text{ seen} \\ b(h)\, p(w|h') & \text{otherwise}
    \end{cases}$$

    Symbols are the tokens `0..vocab_size-1`, then `unknown` (if the vocabulary is open), `end` and `start` (if
    sequences have boundaries). Build one with `from_tokens` or `read_arpa`. Queries are compiled, for any batch.

    Cost of a query: n binary searches per token. Reference: Chen and Goodman (1999); Jurafsky and Martin, chapter 3.

    >>> lm = NGram.from_tokens([[0, 1, 2], [0, 1, 1, 2]], order=2, vocab_size=3, smoothing="ml")
    >>> lm.next_probs([1]).round(3).tolist()  # 0, 1, 2, end
    [0.0, 0.333, 0.667, 0.0]
    """

    levels: tuple[Level, ...]
    log_probs: tuple[Float[Array, "_"], ...]
    log_backoffs: tuple[Float[Array, "_"], ...]
    vocab_size: int = eqx.field(static=True)
    open_vocabulary: bool = eqx.field(static=True)
    boundaries: bool = eqx.field(static=True)

    @classmethod
    def from_tokens(
        cls,
        tokens: Any,
        order: int,
        vocab_size: int,
        smoothing: str = "modified_kneser_ney",
        *,
        k: float = 1.0,
        discount: float | None = None,
        boundaries: bool | None = None,
        open_vocabulary: bool = False,
        interpolate_unigrams: bool = True,
        dtype: Any = None,
    ) -> Self:
        """Counts and smooths a text of whole tokens.

        - `tokens`: a list of sequences, each with a start and an end; or one array `(t,)`, a stream without either
          (`boundaries` overrules). Tokens outside `0..vocab_size-1` are unknown words, allowed when the vocabulary is
          open; `ValueError` otherwise.
        - `smoothing`: "ml", "add_k" (with `k`), "kneser_ney" (one discount per order, or `discount`) or
          "modified_kneser_ney" (three per order, estimated from counts of counts; falls back on tiny data).
        - `interpolate_unigrams`: mix the unigrams of Kneser-Ney with the uniform distribution, which gives unseen and
          unknown words a share: perplexity is finite.
        """
        if not 1 <= order <= 8:
            raise ValueError(f"order must be between 1 and 8; got {order}.")
        if smoothing not in _SMOOTHINGS:
            raise ValueError(f"smoothing must be one of {_SMOOTHINGS}; got {smoothing!r}.")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1; got {vocab_size}.")
        if smoothing == "add_k" and k <= 0:
            raise ValueError(f"k must be positive; got {k}. Without smoothing it is smoothing='ml'.")
        if discount is not None and not 0 <= discount <= 1:
            raise ValueError(f"discount must lie in [0, 1]; got {discount}.")
        boundaries = not _is_stream(tokens) if boundaries is None else boundaries
        symbols = _Symbols(vocab_size, open_vocabulary, boundaries)
        stream, first = _as_stream([tokens] if _is_stream(tokens) else tokens, symbols)
        counted = count_ngrams(stream, first, order, symbols.total, symbols.start)
        if smoothing in ("ml", "add_k"):
            found = add_k(counted, symbols.outcomes, symbols.start, 0.0 if smoothing == "ml" else k)
        else:
            modified = smoothing == "modified_kneser_ney"
            found = kneser_ney(counted, symbols.outcomes, symbols.start, discount, modified, interpolate_unigrams)
        dtype = jnp.result_type(float) if dtype is None else dtype
        log_probs, backoffs = (tuple(jnp.asarray(a, dtype) for a in part) for part in found)
        return cls(to_levels(counted), log_probs, backoffs, vocab_size, open_vocabulary, boundaries)

    # -------------------------------------------------------------------------------------- symbols

    @property
    def order(self) -> int:
        """n."""
        return len(self.log_probs)

    @property
    def symbols(self) -> "_Symbols":
        """The numbers of words, of the unknown word and of the ends of a sentence."""
        return _Symbols(self.vocab_size, self.open_vocabulary, self.boundaries)

    @property
    def num_outcomes(self) -> int:
        """What can come next: tokens, then unknown (open vocabulary), then the end (with boundaries)."""
        return self.symbols.outcomes

    def num_ngrams(self) -> list[int]:
        """How many n-grams of each order have been seen."""
        return [int(jnp.sum(self.log_probs[0] > -jnp.inf)), *[level.words.shape[0] for level in self.levels]]

    # -------------------------------------------------------------------------------------- scores

    def _nodes(self, symbols: Int[Array, "t"]) -> list[Int[Array, "t"]]:
        """Ids of the n-grams of each order that end at each position; -1 where unseen or not yet begun.

        An n-gram is a longer one's child, so each order is one batch of searches from the order below, shifted.
        """
        nodes = [symbols]
        for level in self.levels:
            before = jnp.concatenate([jnp.full(1, -1, symbols.dtype), nodes[-1][:-1]])
            nodes.append(children(level, before, symbols))
        return nodes

    def _log_probs(self, symbols: Int[Array, "t"]) -> Float[Array, "t"]:
        """Log-probability of each symbol given those before it; a symbol of -1 is impossible."""
        nodes = self._nodes(symbols)
        score = _read(self.log_probs[0], symbols, -jnp.inf)
        for n in range(1, self.order):
            before = jnp.concatenate([jnp.full(1, -1, symbols.dtype), nodes[n - 1][:-1]])
            score = _read(self.log_probs[n], nodes[n], score + _read(self.log_backoffs[n - 1], before, 0))
        return score

    def token_log_probs(self, tokens: Any, length: Any = None) -> Float[Array, "t"]:
        """Log-probability of each token of one sequence given those before it, then of its end (with boundaries).

        Zero beyond the length.
        """
        return _token_log_probs(self, *self._checked(tokens, length))

    def log_prob(self, tokens: Any, length: Any = None) -> Scalar:
        """Log-probability of one sequence `(t,)`, of which `length` tokens count; a batch is `vmap`.

        Unknown tokens (any outside the vocabulary) are scored as the unknown word, or impossible in a closed one.
        """
        return jnp.sum(self.token_log_probs(tokens, length))

    def _checked(self, tokens: Any, length: Any) -> tuple[Array, Array]:
        tokens = jnp.asarray(tokens) if np.size(tokens) else jnp.zeros(0, jnp.int32)
        if tokens.ndim != 1 or jnp.issubdtype(tokens.dtype, jnp.floating):
            raise ValueError(f"tokens must be whole numbers (t,); got {tokens.dtype} of shape {tokens.shape}.")
        if length is not None and is_concrete(length) and not 0 <= int(length) <= tokens.shape[0]:
            raise ValueError(f"length is {int(length)}; the sequence has {tokens.shape[0]} tokens.")
        return tokens.astype(jnp.int32), jnp.asarray(tokens.shape[0] if length is None else length, jnp.int32)

    def next_probs(self, context: Any) -> Float[Array, "outcomes"]:
        """The whole distribution of what comes after `context (c,)`: tokens, unknown word, end.

        With boundaries the context is taken to begin the sequence unless it has n-1 tokens or more. A batch of
        contexts of one length is `vmap`. Cost: n searches per outcome.
        """
        return _next_probs(self, _latest(self, self._checked(context, None)[0]))

    def perplexity(self, held_out: Any) -> Scalar:
        """`exp` of minus the mean log-probability per token (ends count as tokens) of a sequence or a list of them."""
        sequences = [held_out] if _is_stream(held_out) else list(held_out)
        arrays = [np.asarray(s) for s in sequences]
        longest = max(a.size for a in arrays)
        padded = np.zeros((len(arrays), longest), np.int32)
        for row, a in zip(padded, arrays, strict=True):
            row[: a.size] = a
        lengths = jnp.asarray([a.size for a in arrays], jnp.int32)
        scores = jax.vmap(self.log_prob)(jnp.asarray(padded), lengths)
        count = jnp.sum(lengths) + self.boundaries * len(arrays)
        return jnp.exp(-pairwise_dot(jnp.ones_like(scores), scores) / count)

    # -------------------------------------------------------------------------------------- generation

    def generate(
        self,
        key: PRNGKey,
        max_tokens: int,
        *,
        context: Sequence[int] = (),
        temperature: float = 1.0,
        top_k: int | None = None,
    ) -> Int[Array, "max_tokens"]:
        """Tokens drawn one after another, after `context`; -1 once the end has come.

        `temperature` below 1 sharpens, `top_k` keeps the likeliest outcomes only. The unknown word is never drawn.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}.")
        if temperature <= 0:
            raise ValueError(f"temperature must be positive; got {temperature}.")
        if top_k is not None and not 1 <= top_k <= self.num_outcomes:
            raise ValueError(f"top_k must be between 1 and {self.num_outcomes}; got {top_k}.")
        past = _latest(self, self._checked(np.asarray(context, np.int32), None)[0])
        return _generate(self, key, past, max_tokens, jnp.asarray(temperature), top_k)


class _Symbols(eqx.Module):
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


def _is_stream(tokens: Any) -> bool:
    """Whether this is one row of tokens rather than a list of sequences."""
    if isinstance(tokens, (np.ndarray, jax.Array)):
        return tokens.ndim == 1
    return len(tokens) > 0 and np.ndim(tokens[0]) == 0


def _as_stream(sequences: Any, symbols: _Symbols) -> tuple[np.ndarray, np.ndarray]:
    """All sequences in one row, with boundaries, and where each begins."""
    arrays = [np.asarray(s) for s in sequences]
    if not arrays or sum(a.size for a in arrays) == 0:
        raise ValueError("tokens is empty: at least one token is wanted.")
    if any(a.ndim != 1 or (a.size and not np.issubdtype(a.dtype, np.integer)) for a in arrays):
        raise ValueError("tokens must be whole numbers: one sequence (t,) or a list of sequences.")
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


def _read(table: Array, node: Array, otherwise: Any) -> Array:
    """Entries of a table; `otherwise` for a node of -1."""
    if table.shape[0] == 0:
        return jnp.broadcast_to(jnp.asarray(otherwise, table.dtype), node.shape)
    return jnp.where(node >= 0, table[jnp.maximum(node, 0)], otherwise)


# Compiled once per shape.


def _inside(lm: NGram, tokens: Array) -> Array:
    known = (tokens >= 0) & (tokens < lm.vocab_size)
    return jnp.where(known, tokens, lm.symbols.unknown)


@eqx.filter_jit
def _token_log_probs(lm: NGram, tokens: Array, length: Array) -> Array:
    t = tokens.shape[0]
    tokens = _inside(lm, tokens)
    if not lm.boundaries:
        return jnp.where(exists(length, t), lm._log_probs(tokens), 0)
    place = jnp.arange(t + 1)
    shifted = jnp.concatenate([tokens, jnp.full(1, lm.symbols.end, tokens.dtype)])
    symbols = jnp.where(place == length, lm.symbols.end, shifted)
    symbols = jnp.concatenate([jnp.full(1, lm.symbols.start, tokens.dtype), symbols])
    return jnp.where(place <= length, lm._log_probs(symbols)[1:], 0)


def _after(lm: NGram, context: Array) -> Array:
    """Log-probabilities of every outcome after the symbols of `context`; -1 in front of it is no symbol."""
    outcomes = jnp.arange(lm.num_outcomes)
    nodes = lm._nodes(context) if context.shape[0] else []
    score = lm.log_probs[0][outcomes]
    for n in range(1, lm.order):
        if n > context.shape[0]:
            break
        before = jnp.broadcast_to(nodes[n - 1][-1], outcomes.shape)
        node = children(lm.levels[n - 1], before, outcomes)
        score = _read(lm.log_probs[n], node, score + _read(lm.log_backoffs[n - 1], before, 0))
    return score


@eqx.filter_jit
def _next_probs(lm: NGram, context: Array) -> Array:
    return jnp.exp(_after(lm, _opened(lm, context)))


def _latest(lm: NGram, context: Array) -> Array:
    """The part of a context that matters, cut before compilation: few shapes, few programs."""
    return context[max(context.shape[0] - (lm.order - 1), 0) :]


def _opened(lm: NGram, context: Array) -> Array:
    """The last n-1 symbols before what comes next, with the start symbol if it is among them."""
    context = _inside(lm, context)
    if lm.boundaries:
        context = jnp.concatenate([jnp.full(1, lm.symbols.start, context.dtype), context])
    return context[max(context.shape[0] - (lm.order - 1), 0) :]


@eqx.filter_jit
def _generate(lm: NGram, key, context, max_tokens: int, temperature, top_k: int | None) -> Array:
    size = max(lm.order - 1, 1)
    context = _opened(lm, context)
    absent = jnp.full(size - min(context.shape[0], size), -1, jnp.int32)
    past = jnp.concatenate([absent, context.astype(jnp.int32)])[::-1][:size, None]
    symbols = lm.symbols

    def draw(past, key, _):
        scores = _after(lm, past[::-1, 0]) / temperature
        if symbols.open_vocabulary:
            scores = scores.at[symbols.unknown].set(-jnp.inf)
        if top_k is not None:
            scores = jnp.where(scores >= jax.lax.top_k(scores, top_k)[0][-1], scores, -jnp.inf)
        ended = (past[0, 0] == symbols.end) & symbols.boundaries
        return jnp.where(ended, symbols.end, jr.categorical(key, scores)).astype(jnp.int32)[None]

    drawn = autoregress(draw, past, jr.split(key, max_tokens), jnp.zeros(max_tokens, jnp.int32))[:, 0]
    return jnp.where(drawn == symbols.end, -1, drawn) if symbols.boundaries else drawn

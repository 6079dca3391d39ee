"""n-gram language models over integer tokens."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._typing import PRNGKey, Scalar
from .._validate import check, is_concrete
from ..inference.chain import autoregress
from .data import exists
from .kneser_ney import add_k, kneser_ney
from .tokens import Symbols, as_rows, as_stream, is_stream, whole_numbers
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
        boundaries = not is_stream(tokens) if boundaries is None else boundaries
        symbols = Symbols(vocab_size, open_vocabulary, boundaries)
        stream, first = as_stream([tokens] if is_stream(tokens) else tokens, symbols)
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
    def symbols(self) -> "Symbols":
        """The numbers of words, of the unknown word and of the ends of a sentence."""
        return Symbols(self.vocab_size, self.open_vocabulary, self.boundaries)

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

    def token_log_probs(self, tokens: Any, length: Any = None) -> Float[Array, "*n t"]:
        """Log-probability of each token of a sequence given those before it, then of its end (with boundaries).

        Zero beyond the length. Batches as in `log_prob`.
        """
        tokens, length = as_rows(tokens, length)
        score = lambda tokens, length: _token_log_probs(self, tokens, length)
        return score(tokens, length) if tokens.ndim == 1 else jax.vmap(score)(tokens, length)

    def log_prob(self, tokens: Any, length: Any = None) -> Float[Array, "*n"]:
        """Log-probability of one sequence `(t,)`, of which `length` tokens count.

        Of a batch `(n, t)` with `length (n,)`, or of a list of sequences, one number each.

        Unknown tokens (any outside the vocabulary) are scored as the unknown word, or impossible in a closed one.
        """
        return jnp.sum(self.token_log_probs(tokens, length), axis=-1)

    def next_probs(self, context: Any) -> Float[Array, "*n outcomes"]:
        """The whole distribution of what comes after `context (c,)`: tokens, unknown word, end.

        With boundaries the context is taken to begin the sequence unless it has n-1 tokens or more. A batch of
        contexts is `(n, c)`, or a list of contexts of any length. Cost: n searches per outcome.
        """
        tokens, length = as_rows(context, None)
        if tokens.ndim == 1:
            return _next_probs(self, _latest(self, tokens))
        return _batch_probs(self, tokens, length)

    def perplexity(self, held_out: Any) -> Scalar:
        """`exp` of minus the mean log-probability per token (ends count as tokens) of a sequence or a list of them."""
        tokens, length = as_rows(held_out, None)
        count = jnp.sum(length) + self.boundaries * length.size
        if tokens.size == 0 or (is_concrete(count) and int(count) == 0):
            raise ValueError("held_out is empty: at least one token is wanted.")
        return jnp.exp(-jnp.sum(self.log_prob(tokens, length)) / count)

    # -------------------------------------------------------------------------------------- generation

    def generate(
        self,
        key: PRNGKey,
        max_tokens: int,
        *,
        context: Any = (),
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
        tokens = whole_numbers(context)
        if tokens.ndim != 1:
            raise ValueError(f"context has shape {tokens.shape}; wanted one sequence (c,).")
        if not self.open_vocabulary:
            check(
                (tokens >= 0) & (tokens < self.vocab_size), f"context holds a token outside 0..{self.vocab_size - 1}."
            )
        past = _latest(self, tokens)
        return _generate(self, key, past, max_tokens, jnp.asarray(temperature), top_k)


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


@eqx.filter_jit
def _batch_probs(lm: NGram, contexts: Array, lengths: Array) -> Array:
    def after(context, length):
        symbols = _inside(lm, context)
        if lm.boundaries:
            symbols = jnp.concatenate([jnp.full(1, lm.symbols.start, symbols.dtype), symbols])
        place = length + lm.boundaries + jnp.arange(1 - lm.order, 0)
        return jnp.exp(_after(lm, jnp.where(place >= 0, symbols[jnp.maximum(place, 0)], -1)))

    return jax.vmap(after)(contexts, lengths)


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

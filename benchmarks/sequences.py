"""Hidden Markov models against hmmlearn (its faster implementation of each) and, where installed, dynamax; n-gram
queries against nltk."""

import dataclasses
import importlib.util
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from hmmlearn.hmm import GaussianHMM

import probml_jax as pml
from benchmarks.timing import Row, measure


def _model(k: int, d: int, dtype: str) -> pml.sequences.HMM:
    rng = np.random.default_rng(0)
    array = lambda a: jnp.asarray(a, dtype)
    probs = lambda a: pml.ML(pml.distributions.Categorical(a))
    rows = pml.Stacked(jax.vmap(probs)(array(rng.dirichlet(np.ones(k), k) * 0.5 + 0.5 * np.eye(k))))
    members = jax.vmap(pml.distributions.Normal)(
        array(rng.normal(size=(k, d)) * 2), array(rng.uniform(0.5, 1.5, (k, d)))
    )
    return pml.sequences.HMM(probs(array(np.full(k, 1 / k))), rows, pml.Stacked(pml.ML(members)))


def _peer(model: pml.sequences.HMM, implementation: str, steps: int = 1) -> GaussianHMM:
    peer = GaussianHMM(
        model.num_states,
        "diag",
        implementation=implementation,
        n_iter=steps,
        tol=-np.inf,
        init_params="",
        min_covar=0.0,
    )
    exact = lambda a: np.asarray(a, np.float64)
    rows = exact(model.transition.each.distribution.probs)
    peer.startprob_ = exact(model.initial.distribution.probs) / exact(model.initial.distribution.probs).sum()
    peer.transmat_ = rows / rows.sum(1, keepdims=True)
    peer.means_ = exact(model.emission.each.distribution.loc)
    peer.covars_ = exact(model.emission.each.distribution.scale) ** 2
    return peer


def _faster(run) -> float:
    """The better of hmmlearn's two implementations."""
    return min(measure(lambda impl=impl: run(impl), repeats=3).run for impl in ("scaling", "log"))


def one_long_sequence(t: int = 100_000, k: int = 8, d: int = 4) -> list[Row]:
    model = _model(k, d, "float32")
    _, x = jax.jit(lambda key: model.sample(key, t))(jr.key(0))
    data = np.asarray(x, np.float64)
    exact = float(_model(k, d, "float64").log_prob(jnp.asarray(data)))
    score = jax.jit(lambda m, x: m.log_prob(x))
    size = f"T={t:,} k={k} d={d}, float32"
    rows = []
    for name, ours, theirs, note in [
        ("score", score, lambda p: p.score(data), "log-likelihood within {:.1e} of float64"),
        ("smooth", jax.jit(lambda m, x: m.smooth(x)), lambda p: p.predict_proba(data), ""),
        ("Viterbi", jax.jit(lambda m, x: m.decode(x)), lambda p: p.decode(data), ""),
    ]:
        peer = _faster(lambda impl, theirs=theirs: theirs(_peer(model, impl)))
        mine = measure(lambda ours=ours: ours(model, x), repeats=9)
        note = note.format(abs(float(score(model, x)) / exact - 1))
        rows.append(Row(f"HMM {name}, {size}", "hmmlearn", peer, mine.run, mine.first, 3, note))
    batch = x[None]
    fit = lambda: pml.fit(model, batch, max_steps=4, rtol=-1.0).objective  # four steps and a last evaluation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = _faster(lambda impl: _peer(model, impl, 5).fit(data))
    mine = measure(fit, repeats=9)
    rows.append(Row(f"HMM five E-steps of EM, {size}", "hmmlearn", peer, mine.run, mine.first, 5))
    with jax.enable_x64(False):  # where it is on, dynamax's EM refuses float32
        return [*rows, *_dynamax(model, x, exact, rows)]


def _dynamax(model: pml.sequences.HMM, x: jax.Array, exact: float, ours: list[Row]) -> list[Row]:
    """The same four questions put to dynamax, where it is installed (it needs a nightly TensorFlow Probability)."""
    if importlib.util.find_spec("dynamax") is None:
        return []
    from dynamax.hidden_markov_model import DiagonalGaussianHMM

    members = model.emission.each.distribution
    peer = DiagonalGaussianHMM(*members.loc.shape)
    params, props = peer.initialize(
        jr.PRNGKey(0),
        initial_probs=model.initial.distribution.probs,
        transition_matrix=model.transition.each.distribution.probs,
        emission_means=members.loc,
        emission_scale_diags=members.scale,
    )
    score = jax.jit(peer.marginal_log_prob)
    questions = [
        lambda: score(params, x),
        lambda f=jax.jit(lambda p, x: peer.smoother(p, x).smoothed_probs): f(params, x),
        lambda f=jax.jit(peer.most_likely_states): f(params, x),
        lambda: peer.fit_em(params, props, x[None], num_iters=5, verbose=False)[1],
    ]
    off = abs(float(score(params, x)) / exact - 1)
    notes = [f"its log-likelihood is off by {off:.1e}", "", "", "it compiles again at every call"]
    return [
        dataclasses.replace(row, peer="dynamax", peer_seconds=measure(ask, 3).run, target=goal, note=note)
        for row, ask, goal, note in zip(ours, questions, (1, 1, 1, 10), notes, strict=True)
    ]


def many_sequences(n: int = 256, t: int = 1_000, k: int = 16, d: int = 4) -> list[Row]:
    model = _model(k, d, "float32")
    _, xs = jax.jit(jax.vmap(lambda key: model.sample(key, t)))(jr.split(jr.key(0), n))
    data = np.asarray(xs, np.float64).reshape(-1, d)
    score = lambda m, x: jnp.sum(pml.in_blocks(m.log_prob, x))
    total, slope = jax.jit(score), jax.jit(jax.value_and_grad(score))
    at_once = jax.jit(lambda m, x: jnp.sum(jax.vmap(m.log_prob)(x)))
    peer = _faster(lambda impl: _peer(model, impl).score(data, [t] * n))
    value, both = measure(lambda: total(model, xs)), measure(lambda: slope(model, xs))
    size = f"{n} x T={t:,} k={k}, float32"
    plain = measure(lambda: at_once(model, xs))
    note = (
        f"value and gradient cost {both.run / value.run:.2f} values (target: at most 3.5); all at once by vmap takes "
    )
    note += f"{1e3 * plain.run:.1f} ms"
    return [Row(f"HMM score of a batch, {size}", "hmmlearn", peer, value.run, value.first, 5, note)]


def ngrams(num_tokens: int = 1_000_000, vocab: int = 10_000) -> list[Row]:
    from nltk.lm import KneserNeyInterpolated
    from nltk.util import everygrams

    rng = np.random.default_rng(0)
    tokens = rng.zipf(1.3, num_tokens) % vocab
    started = time.perf_counter()
    big = pml.sequences.NGram.from_tokens(tokens, 5, vocab)
    counting = time.perf_counter() - started
    small = [tokens[i : i + 20] for i in range(0, 20_000, 20)]
    text = [[str(w) for w in s] for s in small]
    peer = KneserNeyInterpolated(3)
    peer.fit([list(everygrams(s, max_len=3)) for s in text], vocabulary_text=[w for s in text for w in s])
    lm = pml.sequences.NGram.from_tokens(small, 3, vocab, "kneser_ney", boundaries=False)
    queries = jnp.asarray(np.stack(small))
    started = time.perf_counter()
    for s in text[:5]:
        for i in range(2, 20):
            peer.score(s[i], s[i - 2 : i])
    theirs = (time.perf_counter() - started) / (5 * 18) * queries.size
    score = jax.jit(lambda m, q: jax.vmap(m.log_prob)(q))
    mine = measure(lambda: score(lm, queries))
    note = f"{num_tokens:,} tokens to a 5-gram model in {counting:.1f} s ({sum(big.num_ngrams()):,} n-grams)"
    return [Row(f"Kneser-Ney trigram, {queries.size:,} queries", "nltk", theirs, mine.run, mine.first, 100, note)]


def rows(data_dir=None) -> list[Row]:
    return [*one_long_sequence(), *many_sequences(), *ngrams()]

"""Conditional models of label sequences: enumeration, constraints, unknown labels, training, features, bad input."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.test_util import check_grads

import probml_jax as pml
from probml_jax._constraint import split
from probml_jax.inference.sparse import prepared_row_sums, row_sums, sparse_matrix
from probml_jax.methods.drawing import draw
from probml_jax.sequences import (
    HMM,
    MEMM,
    Complete,
    Constraints,
    ConvolutionalScores,
    DenseScores,
    DenseTransitions,
    FeatureEncoder,
    LinearChainCRF,
    Sequences,
    SparseFeatures,
    SparseScores,
    SumScores,
    apply_features,
    bilou_constraints,
    bio_constraints,
    bucket,
    softmax_margin,
    spans,
    tagging_report,
)

T, K, D = 4, 3, 2
ALLOWED = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
GRAMMAR = Constraints(np.array([True, True, False]), ALLOWED, np.array([True, False, True]))


def _random(tree, seed=0):
    """The same module with random weights."""
    free, rebuild = split(tree)
    leaves, structure = jax.tree_util.tree_flatten(free)
    keys = jr.split(jr.key(seed), len(leaves))
    drawn = [0.5 * jr.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return rebuild(jax.tree_util.tree_unflatten(structure, drawn))


def _tagger(kind, dtype="float64", l2=0.0):
    dense = DenseScores.zeros(D, K, dtype)
    crf = lambda **kw: LinearChainCRF(dense, K, l2=l2, **kw)
    made = {
        "crf": lambda: crf(),
        "crf_constrained": lambda: crf(constraints=GRAMMAR),
        "crf_moving": lambda: crf(transition=DenseTransitions.zeros(D, K, dtype), constraints=ALLOWED),
        "crf_bare": lambda: crf(start=None, end=None, active=ALLOWED),
        "crf_network": lambda: LinearChainCRF(ConvolutionalScores(jr.key(0), D, K, hidden=4), K, l2=l2),
        "memm": lambda: MEMM(dense, K, l2=l2),
        "memm_constrained": lambda: MEMM(dense, K, constraints=GRAMMAR, l2=l2),
        "memm_moving": lambda: MEMM(dense, K, transition=DenseTransitions.zeros(D, K, dtype), l2=l2),
    }[kind]()
    cast = lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a
    return _random(jax.tree_util.tree_map(cast, made))


KINDS = "crf crf_constrained crf_moving crf_bare crf_network memm memm_constrained memm_moving".split()
QUICK = "crf_moving memm_constrained".split()  # the others in `make thorough`
every_tagger = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in KINDS]
)


def _inputs(n=None, t=T, dtype="float64", seed=1):
    return jr.normal(jr.key(seed), (t, D) if n is None else (n, t, D), dtype)


def _paths(t=T):
    return np.array(list(itertools.product(range(K), repeat=t)))


def _enumerated(model, x):
    """Probability of every label sequence, by the definition of each model and nothing of the engine."""
    mask = jnp.ones(len(x), bool)
    scores = np.asarray(model.scores(x, mask))
    moves = np.asarray(model.transition(x) if callable(model.transition) else model.transition)
    moves = np.broadcast_to(moves, (len(x) - 1, K, K)).copy()
    if isinstance(model, LinearChainCRF) and model.active is not None:
        moves = np.where(np.asarray(model.active), moves, 0)
    start = np.zeros(K) if model.start is None else np.asarray(model.start)
    end = np.asarray(model.end) if isinstance(model, LinearChainCRF) and model.end is not None else np.zeros(K)
    legal = Constraints(np.ones(K, bool), np.ones((K, K), bool), np.ones(K, bool))
    legal = legal if model.constraints is None else Constraints(*map(np.asarray, model.constraints))
    log = lambda a: np.log(a, where=a > 0, out=np.full(a.shape, -np.inf))
    paths, totals = _paths(len(x)), []
    for y in paths:
        fine = legal.start[y[0]] and legal.end[y[-1]] and legal.transition[y[:-1], y[1:]].all()
        if isinstance(model, LinearChainCRF):
            total = start[y[0]] + end[y[-1]] + sum(scores[s, y[s]] for s in range(len(x)))
            total += sum(moves[s, y[s], y[s + 1]] for s in range(len(x) - 1))
        else:
            first = np.where(legal.start, np.exp(start + scores[0]), 0)
            total = log(first / first.sum())[y[0]]
            for s in range(len(x) - 1):
                row = np.where(legal.transition[y[s]], np.exp(moves[s, y[s]] + scores[s + 1]), 0)
                total += log(row / row.sum())[y[s + 1]]
        totals.append(total if fine else -np.inf)
    totals = np.array(totals)
    return paths, totals - np.logaddexp.reduce(totals)


# ------------------------------------------------------------------ enumeration


@every_tagger
def test_everything_is_the_sum_over_label_sequences(name):
    model, x = _tagger(name), _inputs()
    paths, log_probs = _enumerated(model, x)
    probs = np.exp(log_probs)
    order = np.argsort(-log_probs, kind="stable")
    single = np.stack([(probs[:, None] * (paths == k)).sum(0) for k in range(K)], axis=1)
    got = jax.jit(jax.vmap(lambda y: model.log_prob((x, y))))(jnp.asarray(paths))
    np.testing.assert_allclose(got, log_probs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.marginals(x), single, atol=1e-12)
    assert model.decode(x).tolist() == paths[order[0]].tolist()
    best, scores = model.k_best(x, k=3)
    assert best.tolist() == paths[order[:3]].tolist()
    np.testing.assert_allclose(scores, log_probs[order[:3]], rtol=1e-9, atol=1e-12)
    possible = probs > 0
    np.testing.assert_allclose(model.entropy(x), -np.sum(probs[possible] * log_probs[possible]), atol=1e-10)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: model.sample(k, x)))(jr.split(jr.key(2), 2000)))
    share = np.stack([(draws == k).mean(0) for k in range(K)], axis=1)
    np.testing.assert_allclose(share, single, atol=0.05)  # 2000 draws: four standard errors are 0.045
    if model.constraints is not None:
        assert (probs[~ALLOWED[paths[:, :-1], paths[:, 1:]].all(1)] == 0).all()
        assert (np.asarray(got)[~possible] == -np.inf).all()


@every_tagger
def test_unknown_labels_are_summed_out(name):
    model, x = _tagger(name), _inputs()
    paths, log_probs = _enumerated(model, x)
    y = np.array([-1, 1, -1, 2])
    agree = ((paths == y) | (y == -1)).all(1)
    want = np.logaddexp.reduce(log_probs[agree])
    np.testing.assert_allclose(model.log_prob((x, jnp.asarray(y))), want, rtol=1e-9)
    sets = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [1, 0, 1]], bool)
    agree = sets[np.arange(T), paths].all(1)
    want = np.logaddexp.reduce(log_probs[agree])
    np.testing.assert_allclose(model.log_prob((x, jnp.asarray(sets))), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.log_prob((x, jnp.full(T, -1))), 0, atol=1e-12)


@every_tagger
def test_padding_changes_no_value_and_no_gradient(name):
    model, x = _tagger(name), _inputs(t=3)
    y = jnp.array([0, 1, 2])
    padded = jnp.concatenate([x, jnp.full((2, D), 1e3)]), jnp.int32(3), jnp.array([0, 1, 2, 7, -1])
    score = lambda free, datum: split(model)[1](free).log_prob(datum)
    free = split(model)[0]
    value = jax.jit(jax.value_and_grad(score))
    (a, da), (b, db) = value(free, padded), value(free, (x, y))
    np.testing.assert_allclose(a, b, rtol=1e-12)
    for p, q in zip(jax.tree_util.tree_leaves(da), jax.tree_util.tree_leaves(db), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-12)
    assert model.decode(padded[:2]).tolist() == [*model.decode(x).tolist(), -1, -1]
    np.testing.assert_allclose(model.marginals(padded[:2])[:3], model.marginals(x), atol=1e-12)


@pytest.mark.parametrize("name", ["crf_constrained", "crf_moving", "crf_network", "memm"])
def test_gradients_are_numerical_gradients(name):
    model, x = _tagger(name), _inputs()
    y = jnp.array([0, 1, 2, 2])
    free, rebuild = split(model)
    check_grads(lambda free: rebuild(free).log_prob((x, y)), (free,), 1, modes=["rev"], rtol=1e-5, atol=1e-6)
    check_grads(lambda x: model.log_prob((x, y)), (x,), 1, modes=["rev"], rtol=1e-5, atol=1e-6)


def test_the_gradient_is_empirical_minus_expected_features():
    model, x = _tagger("crf"), _inputs()
    y = jnp.array([0, 2, 1, 1])
    slope = eqx.filter_grad(lambda m: m.log_prob((x, y)))(model)
    single = model.marginals(x)
    want = x.T @ (jax.nn.one_hot(y, K) - single)
    np.testing.assert_allclose(slope.scores.weights, want, atol=1e-12)


@pytest.mark.thorough
def test_labels_may_be_renamed():
    model, x = _tagger("crf"), _inputs()
    order = np.array([2, 0, 1])
    there = lambda m: (m.scores.weights, m.scores.bias, m.transition, m.start, m.end)
    w, b, t, s, e = there(model)
    renamed = eqx.tree_at(there, model, (w[:, order], b[order], t[order][:, order], s[order], e[order]))
    y = jnp.array([0, 1, 2, 0])
    np.testing.assert_allclose(renamed.log_prob((x, jnp.argsort(order)[y])), model.log_prob((x, y)), rtol=1e-12)


def test_float32_is_close_to_float64():
    x = _inputs(t=200)
    y = jr.randint(jr.key(3), (200,), 0, K)
    wide, narrow = _tagger("crf"), _tagger("crf")
    narrow = jax.tree_util.tree_map(lambda a: a.astype("float32") if eqx.is_inexact_array(a) else a, narrow)
    small = narrow.log_prob((x.astype("float32"), y))
    assert small.dtype == jnp.float32
    np.testing.assert_allclose(small, wide.log_prob((x, y)), rtol=2e-6)


# ------------------------------------------------------------------ HMM, MEMM, CRF


def test_a_crf_from_an_hmm_has_its_posterior():
    emission = pml.Stacked(pml.ML(jax.vmap(pml.distributions.Normal)(_inputs(t=K), jnp.ones((K, D)))))
    rows = jnp.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    leaf = pml.Stacked(pml.ML(jax.vmap(pml.distributions.Categorical)(rows)))
    hmm = HMM(pml.ML(pml.distributions.Categorical(jnp.array([0.2, 0.8, 0.0]))), leaf, emission)
    crf, x = LinearChainCRF.from_hmm(hmm), _inputs(t=6)
    np.testing.assert_allclose(crf.marginals(x), hmm.smooth(x), atol=1e-12)
    assert crf.decode(x).tolist() == hmm.decode(x).tolist()
    y = hmm.decode(x)
    joint = hmm.log_prob(Sequences(x, None, y)) - hmm.log_prob(x)
    np.testing.assert_allclose(crf.log_prob((x, y)), joint, rtol=1e-10)


def test_label_bias():
    """Rib and rob: after the first letter each path has one way on, so the MEMM never listens to the second letter."""
    letters = {"r": 0, "i": 1, "o": 2, "b": 3}
    rib, rob = ([letters[c] for c in word] for word in ("rib", "rob"))
    paths = {0: [0, 1, 2], 1: [3, 4, 5]}
    words = [rib] * 3 + [rob] * 7
    xs = jnp.asarray(np.array(words)[:, :, None])
    ys = jnp.asarray(np.array([paths[0]] * 3 + [paths[1]] * 7))
    moves = np.zeros((6, 6), bool)
    moves[[0, 1, 3, 4], [1, 2, 4, 5]] = True
    start = np.array([1, 0, 0, 1, 0, 0], bool)
    rules = Constraints(start, moves, np.ones(6, bool))
    sparse = lambda: SparseScores(jnp.zeros((4, 6)), num_features=4, num_labels=6)
    crf = pml.fit(LinearChainCRF(sparse(), 6, constraints=rules, l2=1e-3), (xs, ys), pml.LBFGS()).model
    memm = pml.fit(MEMM(sparse(), 6, constraints=rules, l2=1e-3), (xs, ys), pml.LBFGS()).model
    heard = jnp.asarray(np.array(rib)[:, None])
    assert crf.decode(heard).tolist() == paths[0]
    assert memm.decode(heard).tolist() == paths[1]  # the commoner word, whatever was heard
    np.testing.assert_allclose(memm.marginals(heard)[0, 3], 0.7, atol=0.01)  # l2 pulls it a little
    assert crf.marginals(heard)[0, 0] > 0.9


# ------------------------------------------------------------------ learning


def _task(n=40, seed=0):
    """Noisy emissions of a sticky chain, of unequal lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 12, n)
    centers = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    xs, ys = np.zeros((n, 12, D)), np.full((n, 12), -1)
    for i, length in enumerate(lengths):
        states = (np.cumsum(rng.uniform(size=length) < 0.3) + rng.integers(3)) % 3
        xs[i, :length], ys[i, :length] = centers[states] + rng.normal(size=(length, D)), states
    return jnp.asarray(xs), jnp.asarray(lengths, jnp.int32), jnp.asarray(ys)


def _model(l2=0.1):
    return LinearChainCRF(DenseScores.zeros(D, K, "float64"), K, l2=l2)


@pytest.mark.thorough
def test_training_reaches_a_point_without_slope_in_any_form_of_the_data():
    xs, lengths, ys = _task()
    plain = pml.fit(_model(), (xs, lengths, ys), pml.LBFGS(), max_steps=200, rtol=1e-14)
    slope = pml.methods.gradient.slope(plain.model, (xs, lengths, ys), jnp.ones(40))
    assert max(float(jnp.abs(g).max()) for g in jax.tree_util.tree_leaves(slope)) < 1e-3
    assert np.diff(plain.objective[: int(plain.num_steps) + 1]).min() > -1e-9
    parts = bucket(Sequences(xs, lengths, Complete(ys)), 3).parts
    assert [p.states.labels.shape for p in parts] == [p.xs.shape[:2] for p in parts]
    weights = jnp.asarray(np.random.default_rng(1).uniform(0.5, 2.0, 40))
    data = (xs, lengths, ys)
    one, two = (pml.objective(plain.model, d, weights) for d in (data, bucket(data, 4)))
    np.testing.assert_allclose(one, two, rtol=1e-12)
    each = jax.vmap(lambda *datum: plain.model.log_prob(datum))(*data)
    np.testing.assert_allclose(one - plain.model.log_prior(), jnp.sum(weights * each), rtol=1e-12)


@pytest.mark.thorough
def test_mini_batches_from_buckets_approach_the_optimum():
    data = bucket(_task(), 3)
    best = pml.fit(_model(), data, pml.LBFGS(), max_steps=200).final_objective
    method = pml.Gradient(optax.adam(3e-2), batch_size=16, key=jr.key(0))
    climbed = pml.fit(_model(), data, method, max_steps=400, rtol=-1.0).model
    assert pml.objective(climbed, data, jnp.ones(40)) > best - 0.05 * abs(best)  # steps of noise remain
    draws = jax.jit(lambda key: _estimate(data, key))
    estimates = np.asarray(jax.vmap(draws)(jr.split(jr.key(1), 400)))
    exact = float(_model().log_likelihood(data, jnp.ones(40)))
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / 20  # unbiased


def _estimate(data, key):
    return draw(lambda m, batch, w: m.log_likelihood(batch, w), _model(), data, jnp.ones(40), key, 8)


@pytest.mark.thorough
def test_em_takes_buckets_too():
    xs, lengths, _ = _task()
    start = pml.sequences.gaussian_hmm(jr.key(0), (xs, lengths), 3, "diagonal")
    whole = pml.fit(start, (xs, lengths), max_steps=5, rtol=-1.0)
    parts = pml.fit(start, bucket((xs, lengths), 3), max_steps=5, rtol=-1.0)
    np.testing.assert_allclose(whole.objective, parts.objective, rtol=1e-10)


def test_unknown_labels_help_to_learn():
    xs, lengths, ys = _task(60, seed=4)
    hidden = jnp.where(jr.uniform(jr.key(0), ys.shape) < 0.6, -1, ys)
    model = pml.fit(_model(), (xs, lengths, hidden), pml.LBFGS()).model
    found = model.decode_all((xs, lengths))
    for path, x, length in zip(found[:3], xs, lengths, strict=False):
        assert path.tolist() == model.decode((x, length))[:length].tolist()
    assert np.mean(np.concatenate(found) == np.asarray(ys)[np.asarray(ys) >= 0]) > 0.85


@pytest.mark.thorough
def test_a_margin_is_softmax_margin():
    x, y = _inputs(), jnp.array([0, 1, 2, 0])
    model = _tagger("crf")
    paths, log_probs = _enumerated(model, x)
    wrong = (paths != np.asarray(y)).sum(1)
    want = log_probs[np.flatnonzero(wrong == 0)[0]] - np.logaddexp.reduce(log_probs + 0.7 * wrong)
    trained = softmax_margin(model, 0.7)
    np.testing.assert_allclose(trained.log_likelihood((x[None], y[None]), jnp.ones(1)), want, rtol=1e-10)
    complete = Sequences(x[None], None, Complete(y[None]))
    np.testing.assert_allclose(trained.log_likelihood(complete, jnp.ones(1)), want, rtol=1e-10)
    fitted = pml.fit(softmax_margin(_model(), 0.7), _task(), pml.LBFGS(), max_steps=30)
    assert fitted.objective[0] < fitted.final_objective
    assert isinstance(fitted.model.tagger, LinearChainCRF)


def test_a_network_trains_end_to_end():
    xs, lengths, ys = _task()
    net = LinearChainCRF(ConvolutionalScores(jr.key(0), D, K, hidden=8), K)
    assert pml.num_parameters(net) > 100
    result = pml.fit(net, bucket((xs, lengths, ys), 2), pml.Gradient(optax.adam(1e-2)), max_steps=60, rtol=-1.0)
    assert result.final_objective > 0.6 * result.objective[0]
    _, scores = result.model.k_best((xs[0], lengths[0]), k=2)
    assert scores[0] >= scores[1]
    plain = LinearChainCRF(scores=eqx.nn.Lambda(lambda x: jnp.zeros((x.shape[0], K))), num_labels=K)
    np.testing.assert_allclose(plain.log_prob((xs[0], jnp.zeros(12, int))), -12 * np.log(3), rtol=1e-6)


# ------------------------------------------------------------------ features


def _sentences():
    words = [["the", "cat", "sat"], ["a", "dog"], ["the", "dog", "sat", "down"]]
    tags = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "P"]]
    word = lambda s, i: f"w={s[i]}"
    before = lambda s, i: [f"w-1={s[i - 1]}", f"pair={s[i - 1]}|{s[i]}"] if i else None
    return apply_features([word, before], words), tags


def test_the_encoder_counts_pads_and_remembers(tmp_path):
    features, tags = _sentences()
    encoder = FeatureEncoder.from_sentences(features, tags)
    data = encoder.encode(features, tags, max_buckets=2)
    assert encoder.num_features == len({f for s in features for step in s for f in step})
    assert [p.xs.shape for p in data.parts] == [(1, 2, 3), (2, 4, 3)]
    for part, positions in zip(data.parts, data.positions, strict=True):
        for row, length, labels, i in zip(part.xs, part.lengths, part.states.labels, positions, strict=True):
            names = [[encoder.features.words[j] for j in step if j >= 0] for step in np.asarray(row)[:length]]
            assert names == features[int(i)]
            assert encoder.labels(labels) == tags[int(i)]
    encoder.save(tmp_path / "encoder.json")
    again = FeatureEncoder.load(tmp_path / "encoder.json")
    assert again.encode(features, tags, max_buckets=2).parts[1].xs.tolist() == data.parts[1].xs.tolist()
    unseen = again.encode([[["w=zebra", "w=cat"]]])
    assert unseen.parts[0].xs.tolist() == [[[-1, encoder.features.words.index("w=cat")]]]
    assert again.encode(features, [[None, "N", None], ["D", None], ["D"] * 4]).parts[0].states is not None
    rare = FeatureEncoder.from_sentences(features, tags, min_count=2)
    assert 0 < rare.num_features < encoder.num_features


def test_values_of_features_count():
    steps = [[{"x": 2.0, "word": "cat", "on": True}, {"x": -1.0}]]
    encoder = FeatureEncoder.from_sentences(steps, [["A", "B"]])
    assert encoder.features.words == ("x", "word:cat", "on")
    part = encoder.encode(steps, [["A", "B"]]).parts[0]
    assert isinstance(part.xs, SparseFeatures)
    assert part.xs.value.tolist() == [[[2.0, 1.0, 1.0], [-1.0, 0.0, 0.0]]]
    model = _random(LinearChainCRF.sparse(3, 2))
    w = model.scores.weights
    want = jnp.stack([2 * w[0] + w[1] + w[2], -w[0]])
    one = jax.tree_util.tree_map(lambda a: a[0], part.xs)
    np.testing.assert_allclose(model.scores(one, jnp.ones(2, bool)), want, rtol=1e-12)
    np.testing.assert_allclose(model.scores.rows(one), want, rtol=1e-12)
    slope = jax.grad(lambda v: jnp.sum(model.scores.rows(one._replace(value=v)) * want))(one.value)
    dense = jax.grad(lambda v: jnp.sum(model.scores(one._replace(value=v), jnp.ones(2, bool)) * want))(one.value)
    np.testing.assert_allclose(slope, dense, rtol=1e-12)


def test_sparse_scores_in_every_form_agree():
    features, tags = _sentences()
    encoder = FeatureEncoder.from_sentences(features, tags)
    data = encoder.encode(features, tags, max_buckets=2)
    observed = encoder.observed(data)
    compact = _random(LinearChainCRF.sparse(encoder.num_features, 4, observed=observed, l2=0.3, boundaries=False))
    full = LinearChainCRF.sparse(encoder.num_features, 4, l2=0.3, boundaries=False)
    table = compact.scores.table()[:-1]
    masked = jnp.where(observed.transitions, compact.transition, 0)
    full = eqx.tree_at(lambda m: (m.scores.weights, m.transition), full, (table, masked))
    ones = jnp.ones(3)
    values = [pml.objective(compact, data, ones), pml.objective(full, data, ones)]
    np.testing.assert_allclose(values[0] - compact.log_prior(), values[1] - full.log_prior(), rtol=1e-12)
    unpooled = pml.Buckets(data.parts, data.positions)
    climb = jax.jit(pml.methods.gradient.slope)
    for a, b in zip(*(jax.tree_util.tree_leaves(climb(compact, d, ones)) for d in (data, unpooled)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    mixed = SumScores((full.scores, full.scores))
    one = jax.tree_util.tree_map(lambda a: a[0], data.parts[1].xs)
    np.testing.assert_allclose(mixed(one, jnp.ones(4, bool)), 2 * full.scores.rows(one), rtol=1e-12)


@pytest.mark.parametrize("width", [1, 5, 40])
def test_sums_of_rows_and_their_transpose(width):
    rng = np.random.default_rng(width)
    index = rng.zipf(1.3, (300, width)) % 50 - 1
    table = jnp.asarray(np.vstack([rng.normal(size=(49, 3)), np.zeros((1, 3))]))
    slope = jnp.asarray(rng.normal(size=(300, 3)))
    dense = np.zeros((300, 50))
    np.add.at(dense, (np.arange(300)[:, None].repeat(width, 1), index), index >= 0)
    matrix = sparse_matrix(index, 49)
    plain = lambda table: row_sums(table, jnp.asarray(index))
    prepared = lambda table: prepared_row_sums(table, matrix)
    for function in (plain, prepared):
        value, back = jax.vjp(jax.jit(function), table)
        np.testing.assert_allclose(value, dense @ np.asarray(table), atol=1e-11)
        np.testing.assert_allclose(back(slope)[0][:-1], (dense.T @ np.asarray(slope))[:-1], atol=1e-11)


def test_observed_pairs_are_those_that_occur():
    features, tags = _sentences()
    encoder = FeatureEncoder.from_sentences(features, tags)
    observed = encoder.observed(encoder.encode(features, tags))
    steps = [
        (f, tag) for s, ts in zip(features, tags, strict=True) for step, tag in zip(s, ts, strict=True) for f in step
    ]
    names = {
        (encoder.features.words[i], encoder.tags.words[j]) for i, j in zip(*map(np.asarray, observed[:2]), strict=True)
    }
    assert names == set(steps)
    assert int(observed.transitions.sum()) == 3


# ------------------------------------------------------------------ grammars and evaluation


def test_grammars():
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    start, moves, end = bio_constraints(labels)
    assert start.tolist() == [True, True, False, True, False]
    assert end.all()
    legal = lambda a, b: bool(moves[labels.index(a), labels.index(b)])
    assert all(legal(*pair) for pair in [("B-X", "I-X"), ("I-X", "I-X"), ("I-X", "B-Y")])
    assert not any(legal(*pair) for pair in [("O", "I-X"), ("B-X", "I-Y"), ("I-Y", "I-X")])
    labels = ["O", "B-X", "I-X", "L-X", "U-X", "L-Y"]
    start, moves, end = bilou_constraints(labels)
    legal = lambda a, b: bool(moves[labels.index(a), labels.index(b)])
    assert start.tolist() == [True, True, False, False, True, False]
    assert end.tolist() == [True, False, False, True, True, True]
    assert all(legal(*pair) for pair in [("B-X", "L-X"), ("I-X", "I-X"), ("L-X", "U-X")])
    assert not any(legal(*pair) for pair in [("B-X", "O"), ("O", "L-X"), ("B-X", "L-Y")])
    with pytest.raises(ValueError, match="'X-1' does not belong"):
        bio_constraints(["X-1"])


def test_spans_and_reports():
    assert [tuple(s) for s in spans(["B-A", "I-A", "I-B", "O", "I-B", "B-B"])] == [
        ("A", 0, 2), ("B", 2, 3), ("B", 4, 5), ("B", 5, 6),
    ]  # fmt: skip
    assert [tuple(s) for s in spans(["U-A", "B-A", "L-A", "O"])] == [("A", 0, 1), ("A", 1, 3)]
    report = tagging_report([["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "O", "B-B"]])
    assert report.accuracy == 0.75
    assert (report.span.precision, report.span.recall) == (0.5, 0.5)
    assert report.kinds["B"].f1 == 1.0
    assert report.per_label["I-A"].recall == 0.0
    assert report.confusion[report.labels.index("I-A"), report.labels.index("O")] == 1
    assert "0.7500" in str(report)
    with pytest.raises(ValueError, match="sequence 0 has 1"):
        tagging_report([["O"]], [["O", "O"]])


# ------------------------------------------------------------------ bad input


def test_bad_input_is_named():
    model = _model()
    xs, lengths, ys = _task(4)
    fit = lambda model, data: pml.fit(model, data, pml.LBFGS(), max_steps=2)
    with pytest.raises(ValueError, match=r"labels must be labels 0..2"):
        fit(model, (xs, lengths, ys.at[0, 0].set(7)))
    with pytest.raises(ValueError, match="longer than"):
        fit(model, (xs, jnp.full(4, 99), ys))
    with pytest.raises(ValueError, match="at least one step"):
        fit(model, (xs, jnp.zeros(4, int), ys))
    with pytest.raises(ValueError, match="needs labels"):
        fit(model, (xs, lengths))
    with pytest.raises(ValueError, match="labels has shape"):
        fit(model, (xs, lengths, ys[:, :3]))
    with pytest.raises(ValueError, match="NaN"):
        fit(model, (xs.at[0, 0, 0].set(jnp.nan), lengths, ys))
    with pytest.raises(ValueError, match=r"one sequence is x\[None\]"):
        fit(model, (xs[0, 0], jnp.zeros((2, 1), int)))
    with pytest.raises(ValueError, match="constraints: transition has shape"):
        LinearChainCRF(model.scores, K, constraints=np.ones((2, 2), bool))
    with pytest.raises(ValueError, match="transition has shape"):
        LinearChainCRF(model.scores, K, transition=jnp.zeros((2, 2)))
    sparse = LinearChainCRF.sparse(5, 2)
    with pytest.raises(ValueError, match=r"feature numbers must be 0..4"):
        fit(sparse, (jnp.full((1, 3, 2), 5), jnp.zeros((1, 3), int)))
    with pytest.raises(TypeError, match="whole numbers"):
        fit(sparse, (jnp.ones((1, 3, 2)), jnp.zeros((1, 3), int)))
    with pytest.raises(ValueError, match="weights has shape"):
        SparseScores(jnp.zeros(3), num_features=5, num_labels=2)


def test_a_labelling_that_is_forbidden_is_named():
    xs, lengths, ys = _task(4)
    never = LinearChainCRF(DenseScores.zeros(D, K, "float64"), K, constraints=np.eye(K, dtype=bool))
    changes = next(i for i in range(4) if len(set(np.asarray(ys)[i, : int(lengths[i])])) > 1)
    with pytest.raises(ValueError, match=f"every labelling of sequence {changes}"):
        pml.fit(never, (xs, lengths, ys), pml.LBFGS(), max_steps=2)
    nothing = LinearChainCRF(DenseScores.zeros(D, K, "float64"), K, constraints=np.zeros((K, K), bool))
    assert nothing.decode(xs[0]).tolist() == [-1] * 12
    assert nothing.log_prob((xs[0], jnp.zeros(12, int))) == -jnp.inf


def test_bad_sentences_are_named():
    features, tags = _sentences()
    encoder = FeatureEncoder.from_sentences(features, tags)
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        encoder.encode([features[0], []])
    with pytest.raises(ValueError, match="sentences is empty"):
        encoder.encode([])
    with pytest.raises(ValueError, match="'Q' is not one"):
        encoder.encode(features[:1], [["Q", "N", "V"]])
    with pytest.raises(ValueError, match="sentence 0 has 3 steps and 1 labels"):
        encoder.encode(features[:1], [["D"]])
    with pytest.raises(ValueError, match="the string 'w=a'"):
        FeatureEncoder.from_sentences([["w=a"]], [["D"]])
    with pytest.raises(ValueError, match="label lists"):
        FeatureEncoder.from_sentences(features, tags[:1])

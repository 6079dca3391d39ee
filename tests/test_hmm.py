"""Hidden Markov models and Markov chains: published figures, ragged and missing data, every emission, bad input."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.distributions import Categorical, Normal, Poisson
from probml_jax.sequences import HMM, MarkovChain, Sequences

STICKY = jnp.array([[0.9, 0.1], [0.2, 0.8]])


def _rows(matrix):
    return pml.Stacked(pml.ML(jax.vmap(Categorical)(jnp.asarray(matrix))))


def _categorical(initial, transition, emission):
    return HMM(pml.ML(Categorical(jnp.asarray(initial))), _rows(transition), _rows(emission))


def _gaussian(allowed=None):
    emission = pml.Stacked(pml.ML(jax.vmap(Normal)(jnp.array([[-2.0, 0.0], [2.0, 1.0]]), jnp.ones((2, 2)))))
    return HMM(pml.ML(Categorical(jnp.array([0.5, 0.5]))), _rows(STICKY), emission, allowed)


def _observations(n=6, t=20):
    states, xs = jax.jit(jax.vmap(lambda key: _gaussian().sample(key, t)))(jr.split(jr.key(0), n))
    return states, xs


# ------------------------------------------------------------------ published figures


def test_the_umbrella_world():
    hmm = _categorical([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], [[0.1, 0.9], [0.8, 0.2]])
    x = jnp.array([1, 1, 0, 1, 1])
    np.testing.assert_allclose(hmm.log_prob(x), -3.372502044, rtol=1e-9)
    paths, scores = hmm.k_best(x, 1)
    np.testing.assert_allclose(scores[0], -4.459028291, rtol=1e-9)
    assert paths[0].tolist() == hmm.decode(x).tolist() == [0, 0, 1, 0, 0]
    np.testing.assert_allclose(hmm.smooth(x)[:, 0], [0.8673, 0.8204, 0.3075, 0.8204, 0.8673], atol=5e-5)


def test_rainy_and_sunny():
    hmm = _categorical([0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]], [[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]])
    x = jnp.array([0, 1, 2])
    np.testing.assert_allclose(jnp.exp(hmm.log_prob(x)), 0.033612, rtol=1e-6)
    paths, scores = hmm.k_best(x, 2)
    np.testing.assert_allclose(jnp.exp(scores[0]), 0.01344, rtol=1e-6)
    assert paths[0].tolist() == [1, 0, 0]


def test_five_steps_of_em_are_hmmlearns():
    hmmlearn = pytest.importorskip("hmmlearn.hmm")
    _, xs = _observations(1, 200)
    off = {"covars_prior": 0.0, "covars_weight": 0.0, "min_covar": 0.0}  # its default is a variance prior
    peer = hmmlearn.GaussianHMM(2, "diag", n_iter=1, tol=-np.inf, init_params="", implementation="log", **off)
    peer.startprob_, peer.transmat_ = np.array([0.5, 0.5]), np.asarray(STICKY)
    peer.means_, peer.covars_ = np.array([[-1.0, 0.0], [1.0, 0.5]]), np.ones((2, 2))
    emission = pml.Stacked(pml.ML(jax.vmap(Normal)(jnp.array([[-1.0, 0.0], [1.0, 0.5]]), jnp.ones((2, 2)))))
    start = eqx.tree_at(lambda m: m.emission, _gaussian(), emission)
    result = pml.fit(start, xs, max_steps=5, rtol=-1.0)
    history = []
    for _ in range(6):
        history.append(peer.score(np.asarray(xs[0])))
        peer.fit(np.asarray(xs[0]))
    np.testing.assert_allclose(result.objective, history, rtol=1e-12)


# ------------------------------------------------------------------ absent data


def test_padding_missing_steps_and_true_lengths_are_the_same():
    hmm = _gaussian()
    _, xs = _observations(1, 7)
    x = xs[0]
    score = lambda m, datum: m.log_prob(datum)
    gradient = eqx.filter_jit(eqx.filter_grad(score))
    value = eqx.filter_jit(score)
    garbage = jnp.concatenate([x[:5], jnp.full((2, 2), 1e30)])
    nothing = jnp.concatenate([x[:5], jnp.full((2, 2), jnp.nan)])
    for padded in ((garbage, jnp.int32(5)), (nothing, jnp.int32(5)), nothing):
        np.testing.assert_allclose(value(hmm, padded), value(hmm, x[:5]), rtol=1e-12)
        got, want = (jax.tree_util.tree_leaves(gradient(hmm, d)) for d in (padded, x[:5]))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
    gap = x.at[2].set(jnp.nan)
    # the missing step integrated out by quadrature over both of its coordinates
    grid = jnp.linspace(-12, 12, 401)
    cells = jnp.stack(jnp.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    scores = jax.jit(jax.vmap(lambda v: hmm.log_prob(gap.at[2].set(v))))(cells)
    total = jax.nn.logsumexp(scores) + 2 * jnp.log(grid[1] - grid[0])
    np.testing.assert_allclose(value(hmm, gap), total, rtol=1e-8)


def test_ragged_em_is_em_of_the_cut_sequences():
    _, xs = _observations(3, 8)
    lengths = jnp.array([8, 5, 3])
    start = _gaussian()
    e_step = jax.jit(lambda data, weights: start.e_step(data, weights))
    together = e_step((xs, lengths), jnp.ones(3))
    parts = [e_step(xs[i : i + 1, : int(n)], jnp.ones(1)) for i, n in enumerate(lengths)]
    summed = jax.tree_util.tree_map(lambda *a: sum(a), *parts)
    for a, b in zip(jax.tree_util.tree_leaves(together), jax.tree_util.tree_leaves(summed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_imputation_is_the_posterior_mean():
    hmm = _gaussian()
    x = _observations(1, 6)[1][0]
    holes = x.at[2].set(jnp.nan).at[4, 1].set(jnp.nan)
    filled = hmm.impute(holes)
    weights = hmm.smooth(holes)
    means = hmm.emission.each.distribution.loc
    np.testing.assert_allclose(filled[2], weights[2] @ means, rtol=1e-10)
    np.testing.assert_allclose(filled[4, 1], weights[4] @ means[:, 1], rtol=1e-10)
    np.testing.assert_array_equal(filled[0], x[0])


# ------------------------------------------------------------------ prediction


def test_prediction_starts_one_step_after_the_data():
    hmm = _gaussian()
    x = _observations(1, 6)[1][0]
    filtered = hmm.filter(x)
    ahead = hmm.predict((x, jnp.int32(4)), 3)
    for h in range(3):
        np.testing.assert_allclose(
            ahead[h], filtered[3] @ np.linalg.matrix_power(np.asarray(STICKY), h + 1), rtol=1e-10
        )
    np.testing.assert_allclose(hmm.forecast(x, 2), hmm.predict(x, 2) @ hmm.emission.each.distribution.loc, rtol=1e-10)
    new = jnp.array([0.3, -0.2])
    gain = hmm.log_prob(jnp.concatenate([x, new[None]])) - hmm.log_prob(x)
    np.testing.assert_allclose(hmm.next_observation(x).log_prob(new), gain, rtol=1e-10)
    belief, total = None, 0.0
    for event in x:
        belief, gain = hmm.step(belief, event)
        total = total + gain
    np.testing.assert_allclose(jnp.exp(belief), filtered[-1], rtol=1e-10)
    np.testing.assert_allclose(total, hmm.log_prob(x), rtol=1e-10)


def test_samples_have_the_models_moments():
    hmm = _gaussian()
    states, xs = jax.jit(jax.vmap(lambda k: hmm.sample(k, 40)))(jr.split(jr.key(1), 500))
    stays = np.mean(np.asarray(states[:, 1:] == states[:, :-1])[np.asarray(states[:, :-1]) == 0])
    assert abs(stays - 0.9) < 0.01
    assert abs(float(xs[states == 1][:, 0].mean()) - 2) < 0.05
    nexts, values = jax.jit(jax.vmap(lambda k: hmm.simulate(k, xs[0], 3)))(jr.split(jr.key(2), 4000))
    want = hmm.predict(xs[0], 3)
    assert np.abs((nexts == 1).mean(0) - want[:, 1]).max() < 5 * 0.5 / 4000**0.5
    assert values.shape == (4000, 3, 2)


# ------------------------------------------------------------------ learning


def test_known_states_are_counted():
    states, xs = _observations(6, 20)
    full = pml.fit(_gaussian(), Sequences(xs, None, states), max_steps=3)
    counts = np.zeros((2, 2))
    np.add.at(counts, (np.asarray(states[:, :-1]), np.asarray(states[:, 1:])), 1)
    rows = full.model.transition.each.distribution.probs
    np.testing.assert_allclose(rows, counts / counts.sum(1, keepdims=True), rtol=1e-10)
    means = [np.asarray(xs)[np.asarray(states) == j].mean(0) for j in range(2)]
    np.testing.assert_allclose(full.model.emission.each.distribution.loc, means, rtol=1e-10)
    paths = itertools.product(range(2), repeat=3)
    short = Sequences(xs[0, :5], None, jnp.concatenate([states[0, :2], jnp.full(3, -1)]))
    each = [_gaussian().log_prob(short._replace(states=jnp.concatenate([states[0, :2], jnp.array(p)]))) for p in paths]
    np.testing.assert_allclose(_gaussian().log_prob(short), jax.nn.logsumexp(jnp.stack(each)), rtol=1e-10)


def test_conditional_training_tells_states_apart():
    states, xs = _observations(6, 20)
    data = Sequences(xs, None, states)
    joint = pml.fit(_gaussian(), data, max_steps=3).model
    start = pml.sequences.conditional(joint)
    result = pml.fit(start, data, pml.LBFGS(), max_steps=20)
    before = jax.vmap(start.log_prob)(data).sum()
    assert result.final_objective > before
    assert result.final_objective < 0
    with pytest.raises(ValueError, match="known states"):
        pml.fit(start, xs, pml.LBFGS())


def test_forbidden_transitions_stay_forbidden():
    xs = jnp.cumsum(jr.uniform(jr.key(0), (4, 30, 1)), axis=1)
    start = pml.sequences.gaussian_hmm(jr.key(1), xs, 3, "diagonal", transitions="left_to_right")
    assert start.initial.distribution.probs.tolist() == [1.0, 0.0, 0.0]
    for method in (pml.EM(), pml.LBFGS()):
        model = pml.fit(start, xs, method, max_steps=8).model
        rows = np.asarray(jnp.exp(model.log_transition()))
        assert (rows[np.tril_indices(3, -1)] == 0).all()
        assert rows[0, 2] == 0
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-9)


BUILDERS = {
    "gaussian_tied": lambda: (pml.sequences.gaussian_hmm(jr.key(0), _observations()[1], 2, "tied"), _observations()[1]),
    "gaussian_bayes": lambda: (
        pml.sequences.gaussian_hmm(jr.key(0), _observations()[1], 2, "diagonal", estimate="bayes"),
        _observations()[1],
    ),
    "poisson": lambda: _with(pml.sequences.poisson_hmm, jr.poisson(jr.key(3), 4.0, (4, 20, 2)).astype(float)),
    "bernoulli_map": lambda: _with(
        pml.sequences.bernoulli_hmm, jr.bernoulli(jr.key(3), 0.4, (4, 20, 3)).astype(float), estimate="map"
    ),
    "mixture": lambda: (
        pml.sequences.mixture_hmm(jr.key(0), _observations()[1], 2, num_components=2),
        _observations()[1],
    ),
    "autoregressive": lambda: (
        pml.sequences.autoregressive_hmm(jr.key(0), jnp.cumsum(_observations()[1], axis=1), 2),
        jnp.cumsum(_observations()[1], axis=1),
    ),
    "product": lambda: (_product(), (_observations()[1][..., 0], jr.poisson(jr.key(4), 3.0, (6, 20)).astype(float))),
}


def _with(build, xs, **options):
    return build(jr.key(0), xs, 2, **options), xs


def _product():
    parts = pml.Product(
        (
            pml.ML(jax.vmap(Normal)(jnp.array([-1.0, 1.0]), jnp.ones(2))),
            pml.ML(jax.vmap(Poisson)(jnp.array([2.0, 4.0]))),
        )
    )
    return HMM(pml.ML(Categorical(jnp.array([0.5, 0.5]))), _rows(STICKY), pml.Stacked(parts))


QUICK = "gaussian_tied gaussian_bayes poisson autoregressive".split()  # the others in `make thorough`


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in BUILDERS])
def test_every_emission_climbs(name):
    model, data = BUILDERS[name]()
    result = pml.fit(model, data, max_steps=8, rtol=-1.0)
    assert int(result.status) in (pml.Status.max_steps, pml.Status.converged)
    trace = np.asarray(result.objective)
    assert np.diff(trace).min() > -1e-9 * abs(trace[-1])
    assert trace[-1] > trace[0]


@pytest.mark.thorough
def test_an_autoregression_is_a_regression():
    """One state: the switching model is ordinary least squares on the lagged values."""
    x = np.asarray(jnp.cumsum(_observations()[1], axis=1))[:2]
    model = pml.sequences.autoregressive_hmm(jr.key(0), jnp.asarray(x), 1, lags=2)
    fitted = pml.fit(model, jnp.asarray(x), max_steps=3).model.emission.each.distribution
    design = np.concatenate([np.concatenate([s[1:-1], s[:-2], np.ones((18, 1))], axis=1) for s in x])
    want = np.linalg.lstsq(design, np.concatenate([s[2:] for s in x]), rcond=None)[0].T
    got = np.concatenate([fitted.matrix[0], fitted.offset[0][:, None]], axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)
    states, values = model.simulate(jr.key(5), jnp.asarray(x[0]), 4)
    assert values.shape == (4, 2)
    assert states.shape == (4,)


def test_states_are_aligned():
    truth = np.array([[0, 0, 1, 2, 2, 1, 3]])
    other = np.array([[2, 2, 0, 3, 3, 0, 1]])
    permutation = pml.sequences.align_states(truth, other, 4)
    assert np.asarray(permutation)[other].tolist() == truth.tolist()
    hmm = _categorical([0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]], [[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]])
    renamed = pml.sequences.permute_states(hmm, jnp.array([1, 0]))
    x = jnp.array([0, 1, 2, 2])
    np.testing.assert_allclose(renamed.log_prob(x), hmm.log_prob(x), rtol=1e-12)
    assert (renamed.decode(x) == 1 - hmm.decode(x)).all()
    rng = np.random.default_rng(0)
    for _ in range(5):
        cost = rng.normal(size=(5, 5))
        best = min(cost[range(5), p].sum() for p in itertools.permutations(range(5)))
        from probml_jax.sequences.alignment import _assign

        np.testing.assert_allclose(cost[range(5), _assign(cost)].sum(), best, rtol=1e-12)


# ------------------------------------------------------------------ Markov chains


def test_a_markov_chain_counts():
    states = jnp.array([[0, 1, 1, 2, 0], [2, 2, 1, 0, 0]])
    chain = MarkovChain.from_data(states, 3, smoothing=0.5, lengths=jnp.array([5, 4]))
    counts = np.full((3, 3), 0.5)
    for row, n in zip(np.asarray(states), (5, 4), strict=True):
        np.add.at(counts, (row[: n - 1], row[1:n]), 1)
    matrix = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(chain.transition_matrix(), matrix, rtol=1e-10)
    start = np.array([1.5, 0.5, 1.5]) / 3.5
    score = np.log(start[0]) + np.log(matrix[0, 1] * matrix[1, 1] * matrix[1, 2] * matrix[2, 0])
    np.testing.assert_allclose(chain.log_prob(states[0]), score, rtol=1e-10)
    gap = jnp.array([0, -1, 1])
    want = np.log(start[0] * (matrix @ matrix)[0, 1])
    np.testing.assert_allclose(chain.log_prob(gap), want, rtol=1e-10)
    np.testing.assert_allclose(chain.n_step(5), np.linalg.matrix_power(matrix, 5), rtol=1e-10)
    pi = chain.stationary()
    np.testing.assert_allclose(pi @ matrix, pi, rtol=1e-10)
    np.testing.assert_allclose(
        chain.entropy_rate(), -np.sum(np.asarray(pi)[:, None] * matrix * np.log(matrix)), rtol=1e-9
    )
    bayes = MarkovChain.from_data(states, 3, smoothing=0.5, estimate="bayes", lengths=jnp.array([5, 4]))
    np.testing.assert_allclose(bayes.transition_matrix(), matrix, rtol=1e-10)  # its predictive
    draws = jax.jit(jax.vmap(lambda k: chain.sample(k, 50)))(jr.split(jr.key(0), 400))
    assert np.abs(np.stack([(draws == j).mean() for j in range(3)]) - pi).max() < 0.03
    again = pml.fit(chain, (states, jnp.array([5, 4])), max_steps=2).model
    np.testing.assert_allclose(again.transition_matrix()[1], (counts[1] - 0.5) / (counts[1].sum() - 1.5), rtol=1e-10)


def test_reducible_chains_are_named():
    two = MarkovChain.from_data([[0, 0, 1, 1, 0], [2, 2, 2, 2, 2]], 3)
    assert two.recurrent_classes() == [[0, 1], [2]]
    with pytest.raises(ValueError, match=r"\[\[0, 1\], \[2\]\]"):
        two.stationary()
    assert np.isnan(jax.jit(lambda m: m.stationary())(two)).all()
    transient = MarkovChain.from_data([[2, 0, 1, 0, 1, 1, 0]], 3)
    np.testing.assert_allclose(transient.stationary(), [0.4, 0.6, 0], atol=1e-9)
    assert transient.recurrent_classes() == [[0, 1]]


# ------------------------------------------------------------------ bad input


def test_bad_sequences_are_named():
    hmm, (_, xs) = _gaussian(), _observations(2, 5)
    with pytest.raises(ValueError, match="lengths holds 6"):
        pml.fit(hmm, (xs, jnp.array([6, 2])))
    with pytest.raises(ValueError, match="at least one step"):
        pml.fit(hmm, (xs, jnp.array([5, 0])))
    with pytest.raises(ValueError, match="different numbers of units"):
        pml.sequences.gaussian_hmm(jr.key(0), (xs, jnp.array([5])), 2)
    with pytest.raises(ValueError, match=r"\(n, t, d\)"):
        pml.sequences.gaussian_hmm(jr.key(0), xs[0], 2)
    with pytest.raises(ValueError, match="states must be labels"):
        pml.fit(hmm, Sequences(xs, None, jnp.full((2, 5), 7)))
    with pytest.raises(ValueError, match="xs must be labels"):
        pml.sequences.categorical_hmm(jr.key(0), jnp.array([[0, 5]]), 2, num_categories=3)
    with pytest.raises(ValueError, match="labels"):
        pml.fit(_categorical([0.5, 0.5], STICKY, STICKY), jnp.array([[0, 2, 1]]))
    with pytest.raises(ValueError, match="sum to one"):
        _categorical([0.5, 0.6], STICKY, STICKY)
    with pytest.raises(ValueError, match="transitions"):
        pml.sequences.gaussian_hmm(jr.key(0), xs, 2, transitions="loop")
    with pytest.raises(ValueError, match="without any allowed"):
        pml.sequences.gaussian_hmm(jr.key(0), xs, 2, transitions=jnp.array([[1, 1], [0, 0]]))
    same = _categorical([0.5, 0.5], STICKY, [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(ValueError, match="alike"):
        pml.fit(same, jnp.array([[0, 1, 1]]))
    with pytest.raises(ValueError, match="states must be whole labels"):
        MarkovChain.from_data(jnp.zeros((2, 3)), 2)
    with pytest.raises(ValueError, match="states must be labels"):
        MarkovChain.from_data([[0, 3]], 2)
    with pytest.raises(ValueError, match="longest"):
        pml.sequences.pad_sequences([[1, 2, 3]], length=2)
    with pytest.raises(ValueError, match="at least one step"):
        pml.sequences.pad_sequences([[1], []])
    impossible = _categorical([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert impossible.log_prob(jnp.array([0, 1])) == -jnp.inf
    slopes = jax.grad(lambda m: m.log_prob(jnp.array([0, 1])))(impossible)
    assert all(np.isfinite(a).all() for a in jax.tree_util.tree_leaves(slopes))

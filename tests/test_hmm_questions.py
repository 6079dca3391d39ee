"""Questions to hidden Markov models and Markov chains: forecasts and imputation by emission, and what is refused."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.distributions import Categorical, Normal, Poisson
from probml_jax.inference import chain
from probml_jax.sequences import HMM, MarkovChain, Sequences

MATRIX = jnp.array([[0.7, 0.3], [0.3, 0.7]])
SYMBOLS = jnp.array([[0.9, 0.1], [0.2, 0.8]])
RATES = jnp.array([1.0, 9.0])


def _stack(rows):
    return pml.Stacked(pml.ML(jax.vmap(Categorical)(jnp.asarray(rows))))


def _hmm(emission):
    return HMM(pml.ML(Categorical(jnp.array([0.5, 0.5]))), _stack(MATRIX), emission)


def _umbrella():
    return _hmm(_stack(SYMBOLS))


def _normals():
    return pml.ML(jax.vmap(Normal)(jnp.array([[-2.0, 0.0], [2.0, 1.0]]), jnp.ones((2, 2))))


def _xs(n=3, t=8):
    return jr.normal(jr.key(0), (n, t, 2))


# ------------------------------------------------------------------ forecasts and imputation


def test_labels_are_forecast_by_their_probabilities_and_imputed_by_the_most_probable():
    hmm, x = _umbrella(), jnp.array([0, -1, 1, 1])
    np.testing.assert_allclose(hmm.forecast(x, 2), hmm.predict(x, 2) @ SYMBOLS, rtol=1e-10)
    scores = [float(hmm.log_prob(x.at[1].set(j))) for j in range(2)]
    assert hmm.impute(x).tolist() == [0, int(np.argmax(scores)), 1, 1]
    assert hmm.impute((jnp.array([0, 0, 0, -1]), 3)).tolist() == [0, 0, 0, -1]  # nothing stands beyond the length


def test_each_part_of_a_product_is_imputed_for_itself():
    parts = (_normals(), pml.ML(jax.vmap(Poisson)(RATES)), pml.ML(jax.vmap(Categorical)(SYMBOLS)))
    hmm = _hmm(pml.Stacked(pml.Product(parts)))
    numbers, counts, labels = (
        _xs()[0],
        jnp.array([1.0, 9, jnp.nan, 2, 0, 1, 1, 2]),
        jnp.array([0, 1, 1, 0, -1, 0, 0, 0]),
    )
    x = (numbers.at[5, 1].set(jnp.nan), counts, labels)
    beliefs = hmm.smooth(x)
    filled = hmm.impute(x)
    np.testing.assert_allclose(filled[0][5, 1], beliefs[5] @ jnp.array([0.0, 1.0]), rtol=1e-10)
    np.testing.assert_allclose(filled[1], counts.at[2].set(beliefs[2] @ RATES), rtol=1e-10)
    assert filled[2].tolist() == labels.at[4].set(int(jnp.argmax(beliefs[4] @ SYMBOLS))).tolist()
    ahead = hmm.forecast(x, 1)
    np.testing.assert_allclose(ahead[1], hmm.predict(x, 1) @ RATES, rtol=1e-10)
    assert [a.shape for a in ahead] == [(1, 2), (1,), (1, 2)]


@pytest.mark.parametrize(
    "build", ["mixture", *[pytest.param(b, marks=pytest.mark.thorough) for b in ("poisson", "bernoulli")]]
)
def test_imputed_numbers_are_posterior_means(build):
    """By quadrature over the missing value of a mixture; by the belief in states where these tell all."""
    if build == "mixture":
        hmm = pml.sequences.mixture_hmm(jr.key(1), 3 * _xs(), 2, 2)
        x = (3 * _xs()[0]).at[3, 1].set(jnp.nan)
        grid = jnp.linspace(-30, 30, 2001)
        scores = jax.jit(jax.vmap(lambda v: hmm.log_prob(x.at[3, 1].set(v))))(grid)
        want = jax.nn.softmax(scores) @ grid
    else:
        data = jr.poisson(jr.key(2), jnp.array([1.0, 3.0]), (3, 8, 2)).astype(float)
        data = jnp.minimum(data, 1) if build == "bernoulli" else data
        hmm = getattr(pml.sequences, f"{build}_hmm")(jr.key(1), data, 2)
        x = data[0].at[3, 1].set(jnp.nan)
        want = hmm.smooth(x)[3] @ hmm.emission.map(lambda leaf: leaf.point().mean())[:, 1]
        whole = x.astype(int).at[3].set(data[0, 2].astype(int))
        np.testing.assert_allclose(hmm.log_prob(whole), hmm.log_prob(whole.astype(float)), rtol=1e-12)
    filled = hmm.impute(x)
    np.testing.assert_allclose(filled[3, 1], want, rtol=1e-7)
    np.testing.assert_array_equal(filled[3, 0], x[3, 0])
    assert hmm.forecast(x, 2).shape == (2, 2)


@pytest.mark.thorough
def test_the_next_observation_of_an_autoregression_knows_the_last_ones():
    xs = jnp.cumsum(_xs(3, 20), axis=1)
    hmm = pml.sequences.autoregressive_hmm(jr.key(1), xs, 2, lags=2)
    x = xs[0]
    gain = hmm.log_prob((x, 10)) - hmm.log_prob((x, 9))
    np.testing.assert_allclose(hmm.next_observation((x, 9)).log_prob(x[9]), gain, rtol=1e-9)
    for ask in (hmm.forecast, lambda x, _: hmm.impute(x)):
        with pytest.raises(ValueError, match="simulate"):
            ask(x, 2)


def test_an_emission_without_a_mean_says_so():
    uneven = pml.density.KernelDensity.from_data(jnp.array([[0.0], [1.0], [3.0]]))
    hmm = _hmm(pml.Stacked(jax.tree_util.tree_map(lambda a: jnp.stack([a, a + 1]), pml.Known(uneven))))
    with pytest.raises(TypeError, match="no closed form"):
        hmm.impute(jnp.array([[0.5], [jnp.nan]]))


def test_what_comes_next_is_normalized_under_uncertain_transitions():
    hmm = pml.sequences.gaussian_hmm(jr.key(1), _xs(), 2, "diagonal", estimate="bayes")
    np.testing.assert_allclose(hmm.predict(_xs()[0], 3).sum(1), 1, rtol=1e-12)


# ------------------------------------------------------------------ lengths, lists, kinds of numbers


def test_one_program_serves_every_length(monkeypatch):
    traced, forward = [], chain.log_partition
    monkeypatch.setattr(chain, "log_partition", lambda *given: traced.append(None) or forward(*given))
    hmm, x = _umbrella(), jnp.zeros(17, int)  # a shape of its own
    for length in (3, 4, np.int64(5), jnp.int32(6)):
        hmm.log_prob((x, length))
    assert len(traced) == 1


def test_lengths_are_read_and_checked():
    hmm, x = _umbrella(), jnp.array([0, 0, 1, 0, 0])
    np.testing.assert_allclose(hmm.log_prob((x, 3)), hmm.log_prob(x[:3]), rtol=1e-12)
    for wrong in (9, -2, 0):
        for ask in (hmm.log_prob, hmm.smooth, lambda d: hmm.predict(d, 1), lambda d: hmm.k_best(d, 2)):
            with pytest.raises(ValueError, match=f"lengths holds {wrong}"):
                ask((x, wrong))
    for ask in (hmm.log_prob, lambda d: pml.fit(hmm, (d[0][None], jnp.array([d[1]])))):
        with pytest.raises(ValueError, match="lengths must be whole"):
            ask((x, 3.0))
    with pytest.raises(ValueError, match="states has shape"):
        hmm.log_prob(Sequences(x, None, x[:3]))
    xs = _xs()
    start = _hmm(pml.Stacked(_normals()))
    fitted = [pml.fit(start, (xs, lengths), max_steps=2).objective for lengths in ([8, 5, 3], jnp.array([8, 5, 3]))]
    np.testing.assert_array_equal(*fitted)
    assert pml.sequences.gaussian_hmm(jr.key(0), (xs, [8, 5, 3]), 2).num_states == 2


def test_lists_are_arrays():
    hmm, markov = _umbrella(), MarkovChain(pml.ML(Categorical(jnp.array([0.5, 0.5]))), _stack(MATRIX))
    x = jnp.array([0, 1, 1])
    assert hmm.log_prob([0, 1, 1]) == hmm.log_prob(x)
    assert hmm.log_prob(([0, 1, 1, 0], 3)) == hmm.log_prob(x)
    assert markov.log_prob([0, 1, 1]) == markov.log_prob(x)
    normal, xs = _hmm(pml.Stacked(_normals())), _xs()
    assert normal.log_prob(xs[0].tolist()) == normal.log_prob(xs[0])
    both = [pml.fit(normal, data, max_steps=2).final_objective for data in (list(xs), xs)]
    assert both[0] == both[1]
    ragged = MarkovChain.from_data([[0, 1], [1, 0, 1]], num_states=2, smoothing=1.0)
    np.testing.assert_allclose(ragged.transition_matrix(), [[1 / 4, 3 / 4], [2 / 3, 1 / 3]], rtol=1e-12)
    for ask in (normal.log_prob, lambda d: pml.fit(normal, d), lambda d: pml.sequences.gaussian_hmm(jr.key(0), d, 2)):
        with pytest.raises(ValueError, match="pad_sequences"):
            ask([xs[0], xs[1, :3]])


def test_kinds_of_numbers():
    normal, labels, xs = _hmm(pml.Stacked(_normals())), _umbrella(), jnp.round(3 * _xs())
    assert normal.decode(xs[0].astype(int)).tolist() == normal.decode(xs[0]).tolist()
    whole = pml.fit(normal, xs.astype(int), max_steps=2).final_objective
    np.testing.assert_allclose(whole, pml.fit(normal, xs, max_steps=2).final_objective, rtol=1e-12)
    floats = jnp.array([0.0, 1.0])
    markov = MarkovChain(pml.ML(Categorical(jnp.array([0.5, 0.5]))), _stack(MATRIX))
    for ask in (labels.log_prob, lambda x: pml.fit(labels, x[None]), markov.log_prob):
        with pytest.raises(ValueError, match="labels"):
            ask(floats)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(TypeError, match="xs is a float64"):
            normal.smooth(np.zeros((4, 2)))
        with pytest.raises(TypeError, match="xs is a float64"):
            normal.log_prob((np.zeros((4, 2)), 3))
    finally:
        jax.config.update("jax_enable_x64", True)


def test_shapes_are_named():
    hmm, labels, xs = _hmm(pml.Stacked(_normals())), _umbrella(), _xs()
    for x in (xs, xs[0][:, 0], jnp.zeros((4, 3))):
        with pytest.raises(ValueError, match=r"wanted \(t, 2\)"):
            hmm.log_prob(x)
    with pytest.raises(ValueError, match=r"wanted \(t,\)"):
        labels.smooth(jnp.zeros((2, 3), int))
    with pytest.raises(ValueError, match=r"wanted \(n, t, 2\): one sequence is xs\[None\]"):
        pml.fit(hmm, xs[0])
    for ask in (lambda x: hmm.log_prob(x[0]), lambda x: pml.fit(hmm, x)):
        with pytest.raises(ValueError, match="no steps"):
            ask(xs[:, :0])
    with pytest.raises(ValueError, match="lengths are whole numbers"):
        hmm.log_prob((xs[0], xs[0]))
    with pytest.raises(ValueError, match=r"wanted \(2,\)"):
        hmm.step(None, xs[0])


# ------------------------------------------------------------------ models that make no sense


def test_parts_that_do_not_fit_are_named():
    three, hmm = jnp.array([0.2, 0.3, 0.5]), _umbrella()
    with pytest.raises(ValueError, match="initial is over"):
        HMM(pml.ML(Categorical(three)), hmm.transition, hmm.emission)
    with pytest.raises(ValueError, match="transition is over"):
        HMM(hmm.initial, _stack([three, three]), hmm.emission)
    with pytest.raises(ValueError, match="initial is over"):
        MarkovChain(pml.ML(Categorical(three)), hmm.transition)
    uneven = _stack([[0.3, 0.7], [0.7, 0.9]])
    for name, parts in (("transition", (uneven, hmm.emission)), ("emission", (hmm.transition, uneven))):
        with pytest.raises(ValueError, match=f"{name} must sum to one; the sum is 1.6"):
            HMM(hmm.initial, *parts)
    with pytest.raises(ValueError, match="weights must be"):
        MarkovChain.from_data([[0, 1], [1, 1]], num_states=2, weights=[-1, 1])
    for build in (
        lambda: pml.sequences.gaussian_hmm(jr.key(0), jnp.full((2, 5, 2), jnp.nan), 2),
        lambda: pml.sequences.categorical_hmm(jr.key(0), jnp.full((2, 5), -1), 2, 3),
    ):
        with pytest.raises(ValueError, match="no observed entry"):
            build()


def test_a_list_of_arrays_is_not_taken_for_something_else():
    """Equal tables stack; a pair of inputs and labels stays a pair; labels of several sequences want padding."""
    labels = [jnp.array([0, 1, 0, 1]), jnp.array([1, 0, 0, 1])]
    hmm = pml.sequences.categorical_hmm(jr.key(0), jnp.stack(labels), 2, 2)
    with pytest.raises(ValueError, match="pad_sequences"):
        pml.fit(hmm, labels, max_steps=2)
    x = jnp.linspace(0.0, 1.0, 12)
    gp = pml.gaussian_processes.GaussianProcess(pml.gaussian_processes.kernels.RBF(0.5), noise=0.1)
    pair, listed = (pml.fit(gp, data, pml.LBFGS(), max_steps=2) for data in ((x, x**2), [x, x**2]))
    np.testing.assert_array_equal(pair.objective, listed.objective)

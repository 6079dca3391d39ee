"""Models inside larger programs: gradients through each composition against finite differences, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import probml_jax as pml
from probml_jax import distributions, sequences
from probml_jax.gaussian_processes import GaussianProcess, kernels


def _slopes_agree(function, tree, step=1e-5, rtol=1e-6):
    """Derivatives along three directions: `jax.grad` of the composition, and central differences of it."""
    moving, still = eqx.partition(tree, eqx.is_inexact_array)
    flat, rebuild = ravel_pytree(moving)
    assert flat.dtype == jnp.float64
    at = jax.jit(jax.value_and_grad(lambda flat: function(eqx.combine(rebuild(flat), still))))
    slope = at(flat)[1]
    assert jnp.all(jnp.isfinite(slope))
    for key in jr.split(jr.key(0), 3):
        direction = jr.normal(key, flat.shape)
        numeric = (at(flat + step * direction)[0] - at(flat - step * direction)[0]) / (2 * step)
        np.testing.assert_allclose(slope @ direction, numeric, rtol=rtol, atol=rtol * float(jnp.linalg.norm(slope)))
    return slope


def _network(key, inputs, outputs):
    return eqx.nn.MLP(inputs, outputs, width_size=5, depth=1, activation=jnp.tanh, key=key)


class _Steps(eqx.Module):
    """One network for every step."""

    network: eqx.nn.MLP

    def __call__(self, x):
        return jax.vmap(self.network)(x)


@pytest.fixture(scope="module")
def series():
    return jr.normal(jr.key(1), (6, 2)), jnp.array([0, 0, 2, 1, -1, 2])


def test_a_network_under_a_crf(series):
    """The likelihood of labels, one of them unknown, with respect to network, transitions and inputs."""
    x, labels = series
    crf = sequences.LinearChainCRF(_Steps(_network(jr.key(2), 2, 3)), 3, transition=jr.normal(jr.key(3), (3, 3)))
    slope = _slopes_agree(lambda given: given[0].log_prob((given[1], labels)), (crf, x))
    assert jnp.count_nonzero(slope) > 40


def test_a_crf_under_a_loss_of_its_marginals(series):
    """Training on expected errors instead of the likelihood goes through the marginals: a second derivative."""
    x, labels = series
    crf = sequences.LinearChainCRF(_Steps(_network(jr.key(2), 2, 3)), 3, transition=jr.normal(jr.key(3), (3, 3)))
    wrong = lambda crf: jnp.sum(jnp.where(labels[:, None] == jnp.arange(3)[None], 0, crf.marginals(x)))
    _slopes_agree(wrong, crf)


def test_a_network_inside_a_kernel():
    x = jnp.linspace(-1.0, 1.0, 9)
    y = jnp.where(x > 0.1, 1.0, -1.0) + 0.1 * x
    gp = GaussianProcess(1.5 * kernels.Warped(kernels.RBF(0.7), _network(jr.key(4), 1, 1)), noise=0.1)
    _slopes_agree(lambda gp: gp.log_prob((x, y)), gp)
    new = jnp.array([-0.55, 0.25, 1.3])
    predicted = lambda gp: jnp.sum(jnp.sin(gp.condition(x, y).mean(new)) + gp.condition(x, y).variance(new))
    _slopes_agree(predicted, gp)


def _layer():
    rows = pml.Stacked(pml.ML(jax.vmap(distributions.Categorical)(jnp.array([[0.8, 0.2], [0.3, 0.7]]))))
    states = jax.vmap(distributions.Normal)(jnp.array([[-1.0], [1.0]]), jnp.array([[0.8], [1.1]]))
    return sequences.HMM(pml.ML(distributions.Categorical(jnp.array([0.6, 0.4]))), rows, pml.Stacked(pml.ML(states)))


@pytest.mark.parametrize("question", ["log_prob", "filter", "smooth"])
def test_an_hmm_between_two_networks(question, series):
    """An encoder, a hidden Markov model in free coordinates, a read-out: likelihood, filter and smoother."""
    x, _ = series
    parts = _network(jr.key(5), 2, 1), pml.unconstrain(_layer()), _network(jr.key(6), 2, 1)

    def loss(parts):
        encoder, raw, read_out = parts
        answer = getattr(pml.constrain(raw), question)(jax.vmap(encoder)(x))
        return answer if question == "log_prob" else jnp.sum(jax.vmap(read_out)(answer) ** 2)

    slope = _slopes_agree(loss, parts)
    assert jnp.count_nonzero(slope) > 20


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(7)
    xs = np.concatenate([rng.normal(size=(14, 1)) - 2, rng.normal(size=(14, 1)) + 3, [[9.0]]])
    return jnp.asarray(xs), jnp.asarray(np.concatenate([rng.normal(size=(6, 1)) - 2, rng.normal(size=(6, 1)) + 3]))


@pytest.mark.thorough
def test_held_out_points_judge_the_weights_of_others(clusters):
    """Through a converged fit: every weight's influence on held-out points is that of fitting again."""
    xs, held_out = clusters
    start = pml.mixtures.gaussian_mixture(jr.key(8), xs, 2)
    start = pml.fit(start, xs, max_steps=500).model

    @jax.jit
    @jax.value_and_grad
    def judge(weights):
        # EM stops where the objective has no more digits, and parameters have half of them: steps must be wide
        model = pml.fit(start, xs, weights=weights, max_steps=1000, rtol=0.0).model
        return jnp.mean(jax.vmap(model.log_prob)(held_out))

    ones = jnp.ones(len(xs))
    influence = judge(ones)[1]
    for i in (0, 14, 28):
        numeric = (judge(ones.at[i].add(1e-2))[0] - judge(ones.at[i].add(-1e-2))[0]) / 2e-2
        np.testing.assert_allclose(influence[i], numeric, rtol=1e-4)
    assert influence[28] < 0  # the point that lies apart does harm


@pytest.mark.thorough
def test_an_encoder_in_place_of_the_posterior(clusters):
    """The bound of an encoder has the right slope, and misses the evidence by the divergence of its answers."""
    xs, _ = clusters
    model = pml.mixtures.gaussian_mixture(jr.key(8), xs, 2)
    encoder, ones = _network(jr.key(9), 1, 2), jnp.ones(len(xs))
    answers = lambda encoder: jax.nn.softmax(jax.vmap(encoder)(xs), axis=1).T
    bound = lambda encoder: model.elbo(xs, ones, answers(encoder))
    _slopes_agree(bound, encoder)
    exact, _ = model.responsibilities(xs)
    given = answers(encoder)
    divergence = jnp.sum(given * jnp.log(given / exact))
    np.testing.assert_allclose(model.log_likelihood(xs, ones) - bound(encoder), divergence, rtol=1e-9)

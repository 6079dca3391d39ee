"""Each documented error is raised, names its argument, and stays silent inside compiled code."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml_jax import distributions as pd

BAD = [
    (lambda: pd.Bernoulli([0.2, 1.2]), "probs"),
    (lambda: pd.Binomial(-0.1, 3), "probs"),
    (lambda: pd.Binomial(0.1, 2.5), "total_count"),
    (lambda: pd.Categorical([0.2, 0.2]), "probs"),
    (lambda: pd.Multinomial([0.2, 0.2], 3), "probs"),
    (lambda: pd.Multinomial([0.5, 0.5], -1), "total_count"),
    (lambda: pd.Multinomial([0.5, 0.5]).mean(), "total_count"),
    (lambda: pd.Poisson(-1.0), "rate"),
    (lambda: pd.NegativeBinomial(0.0, 0.5), "total_count"),
    (lambda: pd.NegativeBinomial(1.0, 1.0), "probs"),
    (lambda: pd.Beta(0.0, 1.0), "alpha"),
    (lambda: pd.Beta(1.0, jnp.nan), "beta"),
    (lambda: pd.Beta(jnp.ones(2), jnp.ones(3)), "alpha|beta"),
    (lambda: pd.Dirichlet([1.0, 0.0]), "concentration"),
    (lambda: pd.Dirichlet(1.0), "concentration"),
    (lambda: pd.Gamma(-1.0, 1.0), "shape"),
    (lambda: pd.Gamma(1.0, [1.0, 0.0]), "rate"),
    (lambda: pd.InverseGamma(1.0, 0.0), "scale"),
    (lambda: pd.Normal(0.0, 0.0), "scale"),
    (lambda: pd.Normal(jnp.zeros(2), jnp.ones(3)), "loc|scale"),
    (lambda: pd.Normal(0.0, 0.1, floor=1.0), "floor"),
    (lambda: pd.SphericalNormal(jnp.zeros(2), jnp.ones(2)), "scale"),
    (lambda: pd.SphericalNormal(0.0, 1.0), "loc"),
    (lambda: pd.MultivariateNormal(jnp.zeros(2), jnp.eye(3)), "covariance"),
    (lambda: pd.MultivariateNormal(jnp.zeros(2), -jnp.eye(2)), "covariance"),
    (lambda: pd.Exponential(0.0), "rate"),
    (lambda: pd.StudentT(0.0, 0.0, 1.0), "df"),
    (lambda: pd.StudentT(1.0, 0.0, -1.0), "scale"),
    (lambda: pd.MultivariateStudentT(1.0, jnp.zeros(2), jnp.eye(3)), "scale_matrix"),
    (lambda: pd.MultivariateStudentT(-1.0, jnp.zeros(2), jnp.eye(2)), "df"),
    (lambda: pd.BetaBinomial(1.0, 1.0, 1.5), "total_count"),
    (lambda: pd.DirichletMultinomial([1.0, -1.0], 3), "concentration"),
    (lambda: pd.Uniform(1.0, 1.0), "low"),
    (lambda: pd.Binomial(0.5, 3).kl(pd.Binomial(0.5, 4)), "total_count"),
    (lambda: pd.Normal(jnp.zeros(2), 1.0).log_prob(jnp.zeros(3)), "x has shape"),
    (lambda: pd.Normal(jnp.zeros(2), 1.0).log_prob(jnp.zeros(())), "x has shape"),
]


@pytest.mark.parametrize(("make", "names"), BAD)
def test_bad_parameters_raise_and_name_the_argument(make, names):
    with pytest.raises(ValueError, match=names):
        make()


BAD_DATA = [
    (pd.Bernoulli([0.5, 0.5]), [[0.0, 2.0]], "0 or 1"),
    (pd.Binomial(0.5, 3), [4.0], "total_count"),
    (pd.Categorical([0.5, 0.5]), np.array([2]), "labels"),
    (pd.Multinomial([0.5, 0.5], 3), [[1.0, 1.0]], "sum to total_count"),
    (pd.Poisson(1.0), [0.5], "whole numbers"),
    (pd.NegativeBinomial(1.0, 0.5), [-1.0], "whole numbers"),
    (pd.Beta(1.0, 1.0), [1.0], "between 0 and 1"),
    (pd.Dirichlet([1.0, 1.0]), [[0.5, 0.6]], "sum to one"),
    (pd.Gamma(1.0, 1.0), [-1.0], "positive"),
    (pd.InverseGamma(1.0, 1.0), [0.0], "positive"),
    (pd.Normal([0.0, 0.0], 1.0), [[1.0, np.inf]], "infinite"),
    (pd.Normal([0.0, 0.0], 1.0), [[1.0, 1.0, 1.0]], r"data has shape \(1, 3\); wanted \(n, 2\)"),
    (pd.SphericalNormal([0.0, 0.0], 1.0), [1.0], "data has shape"),
    (pd.MultivariateNormal([0.0, 0.0], jnp.eye(2)), [[1.0]], "features"),
    (pd.Exponential(1.0), [-1.0], "negative"),
    (pd.StudentT(1.0, 0.0, 1.0), [[1.0]], "data has shape"),
    (pd.MultivariateStudentT(1.0, [0.0], [[1.0]]), [1.0], "data has shape"),
]


@pytest.mark.parametrize(("dist", "xs", "message"), BAD_DATA)
def test_bad_data_raise(dist, xs, message):
    with pytest.raises(ValueError, match=message):
        dist.validate(jnp.asarray(xs))


OUTSIDE = [
    (pd.Bernoulli([0.5, 0.0]), [1.0, 1.0]),
    (pd.Bernoulli([0.5, 1.0]), [1.0, 0.0]),
    (pd.Bernoulli(0.5), 0.5),
    (pd.Binomial(0.5, 3), 4.0),
    (pd.Binomial(0.0, 3), 1.0),
    (pd.Multinomial([0.5, 0.5], 3), [1.0, 1.0]),
    (pd.Multinomial([1.0, 0.0], 3), [2.0, 1.0]),
    (pd.Multinomial([1.0, 0.0]), [2.0, 1.0]),
    (pd.Poisson(2.0), -1.0),
    (pd.Poisson(2.0), 1.5),
    (pd.Poisson(0.0), 1.0),
    (pd.NegativeBinomial(2.0, 0.5), 0.5),
    (pd.Beta(2.0, 2.0), 1.5),
    (pd.Beta(2.0, 2.0), 0.0),
    (pd.Beta([2.0, 0.5], 2.0), [0.0, 0.0]),
    (pd.Dirichlet([2.0, 2.0]), [0.5, 0.6]),
    (pd.Dirichlet([2.0, 2.0]), [1.1, -0.1]),
    (pd.Gamma(2.0, 1.0), -1.0),
    (pd.InverseGamma(2.0, 1.0), 0.0),
    (pd.Exponential(2.0), -0.1),
    (pd.BetaBinomial(1.0, 1.0, 3), 4.0),
    (pd.DirichletMultinomial([1.0, 1.0], 3), [1.0, 1.0]),
    (pd.Uniform(0.0, 1.0), 1.1),
]


@pytest.mark.parametrize(("dist", "x"), OUTSIDE)
def test_outside_the_support_is_impossible(dist, x):
    x = jnp.asarray(x)
    value, gradient = jax.jit(jax.value_and_grad(dist.log_prob))(x)
    assert value == -jnp.inf
    assert np.all(np.isfinite(gradient))
    by_parameter = eqx.filter_jit(eqx.filter_grad(lambda d: d.log_prob(x)))(dist)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(by_parameter))


@pytest.mark.parametrize(
    ("dist", "x", "wanted"),
    [
        (pd.Beta(1.0, 2.0), 0.0, np.log(2)),
        (pd.Beta(1.0, 1.0), 1.0, 0.0),
        (pd.Beta(0.5, 2.0), 0.0, np.inf),
        (pd.Beta(2.0, 0.5), 1.0, np.inf),
        (pd.Gamma(1.0, 3.0), 0.0, np.log(3)),
        (pd.Gamma(0.5, 3.0), 0.0, np.inf),
        (pd.Bernoulli([0.0, 1.0]), [0.0, 1.0], 0.0),
        (pd.Binomial(1.0, 3), 3.0, 0.0),
        (pd.Poisson(0.0), 0.0, 0.0),
        (pd.Multinomial([1.0, 0.0], 3), [3.0, 0.0], 0.0),
        (pd.Multinomial([0.5, 0.25, 0.25]), [1.0, 1.0, np.nan], np.log(4 / 9)),
        (pd.NegativeBinomial(2.0, 0.0), 0.0, 0.0),
        (pd.Uniform(0.0, 0.5), 0.5, np.log(2)),
    ],
)
def test_edges_of_the_support(dist, x, wanted):
    np.testing.assert_allclose(dist.log_prob(jnp.asarray(x)), wanted, atol=1e-12)


def test_bernoulli_takes_booleans_and_integers():
    dist = pd.Bernoulli(jnp.asarray([0.3, 0.6], jnp.float32))
    wanted = dist.log_prob(jnp.asarray([1.0, 0.0], jnp.float32))
    for x in (jnp.array([True, False]), jnp.array([1, 0])):
        value = dist.log_prob(x)
        assert value.dtype == jnp.float32
        assert value == wanted


def test_construction_inside_vmap_and_jit_raises_nothing():
    stack = eqx.filter_vmap(lambda s: pd.Normal(jnp.zeros(2), s))(jnp.array([1.0, -1.0, 2.0]))
    assert stack.scale.shape == (3, 2)
    scores = jax.jit(lambda p: pd.Bernoulli(p).log_prob(jnp.ones(())))(jnp.array(2.0))
    assert scores.shape == ()


def test_degenerate_is_reported():
    xs, weights = jnp.ones((4, 2)), jnp.ones(4)
    free = pd.Normal(jnp.zeros(2), 1.0)
    assert free.refit(free.statistics(xs, weights)).degenerate()
    floored = pd.Normal(jnp.zeros(2), 1.0, floor=1e-3)
    new = floored.refit(floored.statistics(xs, weights))
    np.testing.assert_allclose(new.variance(), 1e-3)
    assert new.degenerate()
    assert not floored.degenerate()
    for dist in (pd.Gamma(jnp.ones(2), 1.0), pd.InverseGamma(jnp.ones(2), 1.0), pd.Beta(jnp.ones(2), 1.0)):
        new = dist.refit(dist.statistics(0.5 * xs, weights))
        assert new.degenerate()
        assert not dist.degenerate()
    ball = pd.SphericalNormal(jnp.zeros(2), 1.0, floor=1e-3)
    assert ball.refit(ball.statistics(xs, weights)).degenerate()
    heavy = pd.MultivariateStudentT(4.0, jnp.zeros(2), jnp.eye(2), floor=jnp.full(2, 1e-3))
    assert heavy.refit(heavy.statistics(xs, weights)).degenerate()

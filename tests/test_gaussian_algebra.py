"""The algebra of the multivariate normal against the dense joint and the textbook's formulas."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from probml_jax.distributions import MultivariateNormal, MultivariateStudentT, Normal, SphericalNormal

RNG = np.random.default_rng(0)
D = 4
ROOT = RNG.normal(size=(D, D))
COV = jnp.asarray(ROOT @ ROOT.T + 0.5 * np.eye(D))
LOC = jnp.asarray(RNG.normal(size=D))
DIST = MultivariateNormal(LOC, COV)
GIVEN, REST = [1, 3], [0, 2]
A = jnp.asarray(RNG.normal(size=(2, D)))
B = jnp.array([0.3, -1.0])
R = jnp.array([[0.5, 0.1], [0.1, 0.3]])
close = lambda a, b, **kw: np.testing.assert_allclose(a, b, rtol=kw.pop("rtol", 1e-10), atol=kw.pop("atol", 1e-11))


def test_marginal_picks_entries():
    part = DIST.marginal([2, 0])
    close(part.loc, LOC[np.array([2, 0])])
    close(part.covariance, COV[np.array([[2], [0]]), np.array([[2, 0]])])


def test_three_forms_of_the_conditional_mean_agree():
    x = jnp.array([0.7, -0.2])
    new = DIST.condition(GIVEN, x)
    a, b = np.array(REST), np.array(GIVEN)
    precision = np.linalg.inv(COV)
    by_covariance = LOC[a] + COV[a[:, None], b] @ np.linalg.solve(COV[b[:, None], b], x - LOC[b])
    block = np.linalg.inv(precision[a[:, None], a])
    by_precision = LOC[a] - block @ precision[a[:, None], b] @ (x - LOC[b])
    by_information = block @ ((precision @ np.asarray(LOC))[a] - precision[a[:, None], b] @ np.asarray(x))
    for wanted in (by_covariance, by_precision, by_information):
        close(new.loc, wanted)
    close(new.covariance, block)


def test_chain_rule_of_densities():
    x = DIST.sample(jr.key(0))
    given = np.array(GIVEN)
    joint = DIST.marginal(GIVEN).log_prob(x[given]) + DIST.condition(GIVEN, x[given]).log_prob(x[np.array(REST)])
    close(joint, DIST.log_prob(x))


def test_affine_and_bayes_rule_agree_with_the_dense_joint():
    y = jnp.array([0.5, 1.5])
    cross = A @ COV
    joint = MultivariateNormal(
        jnp.concatenate([LOC, A @ LOC + B]), jnp.block([[COV, cross.T], [cross, A @ COV @ A.T + R]])
    )
    push = DIST.affine(A, B, R)
    close(push.loc, joint.marginal([4, 5]).loc)
    close(push.covariance, joint.marginal([4, 5]).covariance)
    posterior, wanted = DIST.bayes_rule(A, B, R, y), joint.condition([4, 5], y)
    close(posterior.loc, wanted.loc)
    close(posterior.covariance, wanted.covariance)
    # Bayes' rule itself: prior + likelihood = posterior + evidence, at any x
    x = DIST.sample(jr.key(1))
    likelihood = MultivariateNormal(A @ x + B, R).log_prob(y)
    close(DIST.log_prob(x) + likelihood, posterior.log_prob(x) + push.log_prob(y))


def test_information_form_adds_evidence():
    vector, precision = DIST.information()
    y = jnp.array([0.5, 1.5])
    noise = jnp.linalg.inv(R)
    posterior = MultivariateNormal.from_information(vector + A.T @ noise @ (y - B), precision + A.T @ noise @ A)
    wanted = DIST.bayes_rule(A, B, R, y)
    close(posterior.loc, wanted.loc, rtol=1e-9)
    close(posterior.covariance, wanted.covariance, rtol=1e-9)
    again = MultivariateNormal.from_information(vector, precision)
    close(again.loc, LOC, rtol=1e-9)
    close(MultivariateNormal.from_precision(LOC, precision).covariance, COV, rtol=1e-9)
    close(MultivariateNormal.from_scale_tril(LOC, DIST.scale_tril).covariance, COV)


def test_mahalanobis_eigen_picture():
    x = DIST.sample(jr.key(2))
    lengths, axes = DIST.principal_axes()
    coordinates = axes.T @ (x - LOC) / lengths
    close(DIST.mahalanobis(x), jnp.linalg.norm(coordinates))
    close((axes * lengths[None, :] ** 2) @ axes.T, COV)
    # the tip of each axis is one standard deviation away
    for j in range(D):
        close(DIST.mahalanobis(LOC + lengths[j] * axes[:, j]), 1.0)
    assert DIST.mahalanobis(LOC) == 0
    assert np.all(np.isfinite(jax.grad(DIST.mahalanobis)(LOC)))


def _moments_of_missing(x):
    seen = ~np.isnan(np.asarray(x))
    return np.flatnonzero(seen).tolist(), np.flatnonzero(~seen)


@pytest.mark.parametrize("pattern", [[0], [1, 2], [0, 2, 3], [0, 1, 2, 3]])
def test_missing_entries(pattern):
    x = DIST.sample(jr.key(3)).at[jnp.array(pattern)].set(jnp.nan)
    seen, hidden = _moments_of_missing(x)
    wanted = DIST.marginal(seen).log_prob(x[np.array(seen, int)]) if seen else 0.0
    close(DIST.log_prob(x), wanted)
    mean, spread = DIST.impute(x)
    if seen:
        conditional = DIST.condition(seen, x[np.array(seen)])
        close(mean[hidden], conditional.loc)
        close(spread[hidden[:, None], hidden], conditional.covariance)
        close(mean[np.array(seen)], x[np.array(seen)])
        close(jnp.abs(spread[np.array(seen)]).sum(), 0.0)
    for gradient in (jax.grad(DIST.log_prob)(x), jax.grad(lambda c: MultivariateNormal(LOC, c).log_prob(x))(COV)):
        assert np.all(np.isfinite(gradient))


def test_diagonal_and_spherical_are_special_cases():
    scale = jnp.array([0.5, 2.0, 1.0, 0.1])
    x = jnp.array([0.3, jnp.nan, -1.0, 0.0])
    for special, full in (
        (Normal(LOC, scale), MultivariateNormal(LOC, jnp.diag(scale**2))),
        (SphericalNormal(LOC, 0.7), MultivariateNormal(LOC, 0.49 * jnp.eye(4))),
    ):
        close(special.log_prob(x), full.log_prob(x))
        close(special.entropy(), full.entropy())
        close(special.marginal([2, 0]).variance(), full.marginal([2, 0]).variance())
        close(special.condition([1], jnp.array([0.4])).loc, full.condition([1], jnp.array([0.4])).loc)
        mean, variance = special.impute(x)
        wanted, spread = full.impute(x)
        close(mean, wanted)
        close(variance, jnp.diagonal(spread))


def test_student_t_with_missing_entries_is_its_marginal():
    dist = MultivariateStudentT(3.0, LOC, COV)
    keep = np.array([0, 2])
    x = dist.sample(jr.key(4)).at[jnp.array([1, 3])].set(jnp.nan)
    part = MultivariateStudentT(3.0, LOC[keep], COV[keep[:, None], keep])
    close(dist.log_prob(x), part.log_prob(x[keep]))
    assert np.all(np.isfinite(jax.grad(dist.log_prob)(x)))
    close(dist.log_prob(jnp.full(D, jnp.nan)), 0.0)


def test_wide_student_t_is_normal():
    x = DIST.sample(jr.key(5))
    close(MultivariateStudentT(1e12, LOC, COV).log_prob(x), DIST.log_prob(x), rtol=1e-9)

"""Factor analysis and probabilistic PCA: Gaussian latents, a linear map, independent noise."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from .._constraint import diagonal_matrix
from .._estimate import ML, AbstractEstimate, Bayes, Frozen
from .._linalg import cho_solve, cholesky, inv_psd, log_det, matmul, symmetric
from .._model import AbstractPreparedModel
from .._special import LOG_2PI, missing_in_batch, pairwise_dot
from .._typing import Flag, PRNGKey, Scalar, Statistics
from .._validate import check_finite, check_rank, is_concrete
from ..distributions.linear_normal import LinearNormal
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..distributions.multivariate_normal import MultivariateNormal
from ..distributions.regression import UncertainPairs
from ..inference.rotation import varimax
from .moments import SecondMoments, summarize


class _Line(NamedTuple):
    """The member behind the leaf: loadings, offset, and the noise variance of each feature."""

    loadings: Float[Array, "d p"]
    offset: Float[Array, "d"]
    noise: Float[Array, "d"]


class _Latents(NamedTuple):
    """What events say of the latents: pairs (z, x) as the leaf wants them, their weights, and the log-likelihood."""

    pairs: UncertainPairs
    weights: Float[Array, "n"]
    bound: Scalar


class AbstractFactorModel(AbstractPreparedModel):
    r"""$z \sim N(0, I_p)$, $x \mid z \sim N(Az + b, D)$ with a diagonal $D$: so $x \sim N(b, AA^\top + D)$.

    What factor analysis and probabilistic PCA share: everything but the kind of noise. A unit is one event $x$ (NaN
    entries are integrated out exactly) or the `SecondMoments` of many.
    """

    observation: eqx.AbstractVar[AbstractEstimate]

    @property
    def line(self) -> _Line:
        """Loadings, mean and noise variances of one member standing for the belief."""
        member = self.observation.point()
        return _Line(member.matrix, member.offset, jnp.broadcast_to(member.scale**2, member.offset.shape))

    @property
    def num_factors(self) -> int:
        """p."""
        return self.line.loadings.shape[1]

    @property
    def loadings(self) -> Float[Array, "d p"]:
        """$A$."""
        return self.line.loadings

    @property
    def noise_variance(self) -> Float[Array, "d"]:
        """The diagonal of $D$: uniquenesses."""
        return self.line.noise

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, datum: Float[Array, "d"] | SecondMoments) -> Scalar:
        r"""$\log N(x \mid b, AA^\top + D)$ of the observed entries, by the $p \times p$ posterior precision alone."""
        if isinstance(datum, SecondMoments):
            return _summary_log_prob(self.line, datum)
        return jax.lax.cond(missing_in_batch(datum), _masked_log_prob, _plain_log_prob, self.line, datum)

    @eqx.filter_jit
    def posterior(self, x: Float[Array, "d"]) -> MultivariateNormal:
        r"""$p(z \mid x)$ given the observed entries: $N(VA^\top D^{-1}(x-b), V)$, $V = (I + A^\top D^{-1}A)^{-1}$."""
        line, seen = self.line, ~jnp.isnan(x)
        mean = _mean(line, x, seen)
        return MultivariateNormal(mean, inv_psd(_precision(line, seen)))

    @eqx.filter_jit
    def transform(self, xs: Float[Array, "n d"]) -> Float[Array, "n p"]:
        """Posterior means of the latents of many events."""
        return jax.vmap(lambda x: _mean(self.line, x, ~jnp.isnan(x)))(xs)

    @eqx.filter_jit
    def impute(self, x: Float[Array, "d"]) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        """The event with conditional means in place of missing entries, and their covariance (zero where observed)."""
        line, seen = self.line, ~jnp.isnan(x)
        latent = self.posterior(x)
        spread = matmul(matmul(line.loadings, latent.covariance), line.loadings.T) + diagonal_matrix(line.noise)
        hidden = ~seen[:, None] & ~seen[None, :]
        filled = jnp.where(seen, x, matmul(line.loadings, latent.loc) + line.offset)
        return filled, jnp.where(hidden, symmetric(spread), 0)

    @eqx.filter_jit
    def sample(self, key: PRNGKey) -> Float[Array, "d"]:
        """One event."""
        first, second = jr.split(key)
        line = self.line
        z = jr.normal(first, (self.num_factors,), line.offset.dtype)
        noise = jnp.sqrt(line.noise) * jr.normal(second, line.offset.shape, line.offset.dtype)
        return matmul(line.loadings, z) + line.offset + noise

    def mean(self) -> Float[Array, "d"]:
        """Mean of the observations."""
        return self.line.offset

    @eqx.filter_jit
    def marginal_covariance(self) -> Float[Array, "d d"]:
        r"""$AA^\top + D$."""
        line = self.line
        return symmetric(matmul(line.loadings, line.loadings.T)) + diagonal_matrix(line.noise)

    def marginal_distribution(self) -> MultivariateNormal:
        """The distribution of an event as one dense Gaussian."""
        return MultivariateNormal(self.line.offset, self.marginal_covariance())

    def rotated(self) -> Self:
        """The same density with varimax loadings. Under a prior that prefers a direction the objective may differ."""
        if not isinstance(self.observation, ML):
            raise TypeError(f"only an ML leaf can be rotated; this one is {type(self.observation).__name__}.")
        turned = varimax(self.loadings).loadings
        return eqx.tree_at(lambda m: m.observation.distribution.matrix, self, turned)

    # -------------------------------------------------------------------------------------- learning

    def prepare(self, data: Any, weights: Float[Array, "n"]) -> tuple[Any, Float[Array, "_"]]:
        """Complete events as their second moments, where those are smaller; steps do not touch the data again."""
        known = isinstance(data, jax.Array) and is_concrete(data, weights) and data.shape[0] > data.shape[1]
        if not known or bool(np.isnan(np.asarray(data)).any()):
            return data, weights
        return summarize(data, weights), jnp.asarray(np.ones(1, data.dtype))

    def e_step(self, data: Any, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        latents = _latents(self.line, data, weights)
        return self.observation.statistics(latents.pairs, latents.weights), latents.bound

    def m_step(self, stats: Statistics) -> Self:
        return eqx.tree_at(lambda m: m.observation, self, self.observation.refit(stats))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return self.observation.recenter(stats, new.observation)

    def log_prior(self) -> Scalar:
        return self.observation.log_prior()

    def surrogate(self, data: Any, weights: Float[Array, "n"], reference: Self) -> Scalar:
        """Missing entries are latent here, as in the M-step."""
        latents = jax.lax.stop_gradient(_latents(reference.line, data, weights))
        member = self.observation.point()
        return member.score(member.statistics(latents.pairs, latents.weights))

    def validate(self, data: Any) -> None:
        d = self.line.offset.size
        xs, shape = (data.mean, "second moments of") if isinstance(data, SecondMoments) else (data, "")
        check_rank("data", xs, 2, f"{shape} (n, {d})".strip())
        if xs.shape[1] != d:
            raise ValueError(f"data has {xs.shape[1]} features; the model has {d}.")
        check_finite("data", xs)

    def degenerate(self) -> Flag:
        """A noise variance sits on its floor: a Heywood case, or a feature that does not vary."""
        return self.observation.degenerate()


class FactorAnalysis(AbstractFactorModel):
    r"""Factor analysis: $z \sim N(0, I_p)$, $x \mid z \sim N(Az + b, \mathrm{diag}(\sigma^2))$.

    `observation` is an `ML`, `MAP` or `Frozen` leaf of `LinearNormal` (or `LinearSphericalNormal`, which makes it
    probabilistic PCA; see `PPCA`); other leaves raise `TypeError`. Started well by `factor_analysis(key, xs, p)`.
    Missing (NaN) entries are integrated out exactly, in scores and in learning. Complete data enter EM as their second
    moments only, so that a step costs the same for any number of events. Towards a Heywood case (a noise variance that
    tends to its floor) EM creeps; `LBFGS` does not. Loadings are determined up to a rotation: `rotated()` picks the
    varimax one.

    Cost: $dp^2 + p^3$ for all complete events and $dp$ for each; $dp^2 + p^3$ for each with missing entries; a step of
    EM from second moments $d^2p$. Reference: Bishop (2006), section 12.2.4; Rubin and Thayer (1982).

    >>> import probml_jax as pml
    >>> xs = jr.normal(jr.key(0), (200, 1)) * jnp.array([[1.0, 2.0, -1.0]]) + 0.1 * jr.normal(jr.key(1), (200, 3))
    >>> model = pml.fit(pml.factors.factor_analysis(jr.key(2), xs, num_factors=1), xs).model
    >>> round(float(model.impute(jnp.array([1.0, jnp.nan, -1.0]))[0][1]), 1)
    2.0
    """

    observation: AbstractEstimate

    def __check_init__(self):
        check_leaf(self.observation, (LinearNormal, LinearSphericalNormal))


def check_leaf(leaf: AbstractEstimate, kinds: tuple[type, ...]) -> None:
    """Raise `TypeError` unless the leaf is a point estimate of one of these linear families, without directions."""
    inner = leaf.leaf if isinstance(leaf, Frozen) else leaf
    if isinstance(inner, Bayes):
        raise TypeError("observation must be an ML, MAP or Frozen leaf: loadings are point estimates here.")
    member = inner.point()
    names = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(member, kinds):
        raise TypeError(f"observation must be a leaf of {names}; got {type(member).__name__}.")
    if isinstance(member, LinearSphericalNormal) and member.directions is not None:
        raise TypeError("observation must have independent noise: directions=None.")


# ------------------------------------------------------------------ the posterior of the latents


def _precision(line: _Line, seen: Bool[Array, "d"]) -> Float[Array, "p p"]:
    rate = jnp.where(seen, 1 / line.noise, 0)
    return matmul((rate[:, None] * line.loadings).T, line.loadings) + jnp.eye(line.loadings.shape[1], dtype=rate.dtype)


def _residual(line: _Line, x: Array, seen: Array) -> Array:
    return jnp.where(seen, jnp.where(seen, x, line.offset) - line.offset, 0)


def _mean(line: _Line, x: Array, seen: Array) -> Float[Array, "p"]:
    pull = matmul(line.loadings.T, _residual(line, x, seen) / line.noise)
    return cho_solve(cholesky(_precision(line, seen)).factor, pull)


def _score(line: _Line, factor: Array, mean: Array, residual: Array, seen: Array) -> Scalar:
    r"""$\log p(x)$ as a sum of squares at the posterior mean: nothing cancels when the noise is small."""
    left = jnp.where(seen, residual - matmul(line.loadings, mean), 0)
    each = jnp.where(seen, LOG_2PI + jnp.log(line.noise) + left**2 / line.noise, 0)
    return -0.5 * (jnp.sum(each) + jnp.sum(mean**2) + log_det(factor))


def _plain_log_prob(line: _Line, x: Array) -> Scalar:
    # the factor does not depend on x: under vmap over events it is computed once
    everything = jnp.ones(line.offset.shape, bool)
    factor = cholesky(_precision(line, everything)).factor
    residual = x - line.offset
    mean = cho_solve(factor, matmul(line.loadings.T, residual / line.noise))
    return _score(line, factor, mean, residual, everything)


def _masked_log_prob(line: _Line, x: Array) -> Scalar:
    seen = ~jnp.isnan(x)
    factor = cholesky(_precision(line, seen)).factor
    residual = _residual(line, x, seen)
    mean = cho_solve(factor, matmul(line.loadings.T, residual / line.noise))
    return _score(line, factor, mean, residual, seen)


def _gain(line: _Line) -> tuple[Array, Array]:
    r"""The Cholesky factor of the posterior precision of complete events, and $B = VA^\top D^{-1}$."""
    factor = cholesky(_precision(line, jnp.ones(line.offset.shape, bool))).factor
    return factor, cho_solve(factor, (line.loadings / line.noise[:, None]).T)


def _summary_log_prob(line: _Line, moments: SecondMoments) -> Scalar:
    _, gain = _gain(line)
    keep = jnp.eye(line.offset.size, dtype=gain.dtype) - matmul(line.loadings, gain)
    squares = jnp.sum(matmul(keep, moments.scatter) * keep, axis=1) / line.noise
    latent = jnp.sum(matmul(gain, moments.scatter) * gain)
    at_mean = _plain_log_prob(line, moments.mean)
    return moments.count * at_mean - 0.5 * (jnp.sum(squares) + latent)


def _latents(line: _Line, data: Any, weights: Array) -> _Latents:
    if isinstance(data, SecondMoments):
        return _from_summary(line, data, weights)
    return jax.lax.cond(missing_in_batch(data), _from_holes, _from_complete, line, data, weights)


def _from_summary(line: _Line, data: SecondMoments, weights: Array) -> _Latents:
    """Units with a spread of their own are uncertain pairs already: all that is latent is linear in x."""
    factor, gain = _gain(line)
    scatter = jnp.tensordot(weights, data.scatter, 1, precision=jax.lax.Precision.HIGHEST)
    share = weights * data.count
    means = matmul(data.mean - line.offset[None, :], gain.T)
    yx = matmul(scatter, gain.T)
    xx = matmul(gain, yx) + jnp.sum(share) * _inverse(factor)
    bound = pairwise_dot(weights, jax.vmap(lambda unit: _summary_log_prob(line, unit))(data))
    return _Latents(UncertainPairs(means, data.mean, symmetric(xx), yx, symmetric(scatter)), share, bound)


def _inverse(factor: Array) -> Array:
    return symmetric(cho_solve(factor, jnp.eye(factor.shape[0], dtype=factor.dtype)))


def _from_complete(line: _Line, xs: Array, weights: Array) -> _Latents:
    factor, gain = _gain(line)
    d, p = line.loadings.shape
    residual = xs - line.offset[None, :]
    means = matmul(residual, gain.T)
    left = residual - matmul(means, line.loadings.T)
    squares = matmul(left**2, 1 / line.noise) + jnp.sum(means**2, axis=1)
    constant = d * LOG_2PI + jnp.sum(jnp.log(line.noise)) + log_det(factor)
    bound = pairwise_dot(weights, -0.5 * (squares + constant))
    zero = jnp.zeros((d, p), xs.dtype)
    pairs = UncertainPairs(means, xs, jnp.sum(weights) * _inverse(factor), zero, jnp.zeros((d, d), xs.dtype))
    return _Latents(pairs, weights, bound)


def _from_holes(line: _Line, xs: Array, weights: Array) -> _Latents:
    """Missing entries are latent too: they are the linear map of the latents, plus noise of their own."""
    d, p = line.loadings.shape
    seen = ~jnp.isnan(xs)
    weights = jnp.where(jnp.any(seen, axis=1), weights, 0)  # an event of which nothing is known teaches nothing
    residual = jnp.where(seen, jnp.where(seen, xs, 0) - line.offset[None, :], 0)
    rate = jnp.where(seen, (1 / line.noise)[None, :], 0)
    outer = (line.loadings[:, :, None] * line.loadings[:, None, :]).reshape(d, p * p)
    precision = matmul(rate, outer).reshape(-1, p, p) + jnp.eye(p, dtype=xs.dtype)[None]
    factor = jax.vmap(lambda a: cholesky(a).factor)(precision)
    covariance = jax.vmap(_inverse)(factor)
    means = jnp.sum(covariance * matmul(rate * residual, line.loadings)[:, None, :], axis=2)
    bound = pairwise_dot(weights, jax.vmap(lambda *a: _score(line, *a))(factor, means, residual, seen))
    # by feature: the latents' covariance, pooled over the events that miss it
    unseen = jnp.where(seen, 0, weights[:, None])
    blurred = matmul(unseen.T, covariance.reshape(-1, p * p)).reshape(d, p, p)
    yx = jnp.sum(line.loadings[:, :, None] * blurred, axis=1)
    # only the diagonal: noise is independent, and no leaf of ours looks further
    yy = jnp.sum(unseen, axis=0) * line.noise + jnp.sum(yx * line.loadings, axis=1)
    xx = jnp.tensordot(weights, covariance, 1, precision=jax.lax.Precision.HIGHEST)
    filled = jnp.where(seen, xs, matmul(means, line.loadings.T) + line.offset[None, :])
    return _Latents(UncertainPairs(means, filled, xx, yx, diagonal_matrix(yy)), weights, bound)

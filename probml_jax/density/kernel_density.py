"""Kernel density estimation: a bump on every point."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._constraint import param, positive
from .._linalg import matmul
from .._model import AbstractModel
from .._special import LOG_2PI, logsumexp, middle, missing_in_batch, pairwise_dot, safe_log
from .._typing import Flag, PRNGKey, Scalar
from .._validate import (
    as_float,
    as_weights,
    check_finite,
    check_positive,
    check_rank,
    check_shape,
    is_concrete,
)
from ..inference import pairs
from .kernels import KERNELS, Kernel

_RULES = ("scott", "silverman")


class KernelDensity(AbstractModel):
    r"""$p(x) = \sum_j w_j\, K((x - x_j)/h) / \prod_l h_l$: a mixture of bumps, one on every point.

    - `points (n, d)` and their `weights (n,)`, which sum to one.
    - `bandwidth`: h, one for all dimensions `()` or one for each `(d,)`; the only thing that trains.
    - `kernel`: "gaussian", "exponential" ($e^{-r}$), or of bounded reach: "tophat" (a ball of radius h), "epanechnikov"
      ($1 - r^2$), "triangular" ($1 - r$), "cosine" ($\cos \pi r/2$), all of $r = |x - x_j|$ in bandwidths; and "box",
      a cube of side h.

    Make one by `from_data`. Its own points are one unit to `fit`: what it climbs is the leave-one-out likelihood, the
    score of every point by all others, and `LBFGS` finds the bandwidth. Points that occur twice (or more) make it
    favor a bandwidth of zero, reported as `Status.degenerate`; unless the reach is bounded, that is its only trap.

    Cost: $nd$ for one event, $mnd$ for m, in blocks of bounded memory. Reference: Bishop (2006), equation 2.250, and
    2.247 for the box; Murphy (2022), section 16.3.

    >>> import probml_jax as pml
    >>> xs = jr.normal(jr.key(0), (200, 1))
    >>> kde = KernelDensity.from_data(xs, bandwidth="scott")
    >>> better = pml.fit(kde, xs, pml.LBFGS()).model
    >>> bool(abs(jnp.exp(better.log_prob(jnp.zeros(1))) - 0.4) < 0.1)
    True
    """

    points: Float[Array, "n d"]
    weights: Float[Array, "n"]
    bandwidth: Float[Array, "*d"] = param(positive)
    kernel: str = eqx.field(static=True, default="gaussian")

    def __check_init__(self):
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {self.kernel!r}.")
        check_rank("points", self.points, 2, "(n, d); one feature is xs[:, None]")
        if self.bandwidth.ndim:
            check_shape("bandwidth", self.bandwidth, self.points.shape[1:])
        check_positive("bandwidth", self.bandwidth)
        check_finite("bandwidth", self.bandwidth, nan=False)

    @classmethod
    def from_data(cls, xs: Any, bandwidth: Any = "scott", kernel: str = "gaussian", weights: Any = None) -> Self:
        r"""The density of `xs (n, d)` with real sample `weights (n,)`.

        `bandwidth`: a number, one for each dimension, or a rule for Gaussian data and kernel: "scott",
        $\sigma_l\, n^{-1/(d+4)}$, or "silverman", $\sigma_l\, (n(d+2)/4)^{-1/(d+4)}$, with the standard deviation of
        each dimension and, under weights, $n = 1/\sum w^2$. NaN or infinite entries, no rows, or a bandwidth that is
        not positive (a rule for a feature that does not vary) raise `ValueError`. Cost: $nd$.

        Reference: Scott (2015), equation 6.43; Silverman (1986), equation 4.14.
        """
        xs = as_float(jnp.asarray(xs) if isinstance(xs, list) else xs, "xs")
        check_rank("xs", xs, 2, "(n, d); one feature is xs[:, None]")
        if xs.shape[0] == 0:
            raise ValueError("xs is empty: at least one point is wanted.")
        check_finite("xs", xs, nan=False)
        weights = as_weights(weights, xs.shape[0], xs.dtype)
        weights = weights / jnp.sum(weights)
        if isinstance(bandwidth, str):
            if bandwidth not in _RULES:
                raise ValueError(f"bandwidth must be a number, or one of 'scott', 'silverman'; got {bandwidth!r}.")
            bandwidth = _by_rule(xs, weights, bandwidth)
        return cls(xs, weights, jnp.asarray(as_float(bandwidth, "bandwidth"), xs.dtype), kernel)

    @property
    def _shape(self) -> Kernel:
        return KERNELS[self.kernel]

    def _scaled(self, xs: Array) -> Array:
        """In bandwidths, from the middle of the points: what is far from zero would lose its digits."""
        moved = xs - jax.lax.stop_gradient(middle(self.points))[None]
        return moved / (self.bandwidth[None] if self.bandwidth.ndim else self.bandwidth)

    def _log_constant(self) -> Scalar:
        """Logarithm of the volume of one bump."""
        d = self.points.shape[1]
        each = jnp.broadcast_to(self.bandwidth, (d,))
        return self._shape.log_volume(d) + jnp.sum(jnp.log(each))

    # ------------------------------------------------------------------------------------------ the density

    def log_prob(self, x: Float[Array, "d"]) -> Scalar:
        r"""$\log p(x)$ of one event; `-inf` out of the kernel's reach.

        Missing (NaN) entries are integrated out by the Gaussian kernel, exactly; others answer NaN.
        """
        return self.log_probs(jnp.asarray(x)[None])[0]

    def log_probs(self, xs: Float[Array, "m d"]) -> Float[Array, "m"]:
        r"""$\log p(x_i)$ of many events, in blocks: memory does not grow with the number of pairs."""
        xs = as_float(xs, "xs")
        check_rank("xs", xs, 2, "(m, d); one event is log_prob(x)")
        check_shape("xs", xs, (xs.shape[0], self.points.shape[1]))
        return _log_probs(self, xs)

    @eqx.filter_jit
    def sample(self, key: PRNGKey) -> Float[Array, "d"]:
        """One event: a point by weight, moved by a draw from the kernel."""
        which, how = jr.split(key)
        center = self.points[jr.choice(which, self.points.shape[0], p=self.weights)]
        return center + self.bandwidth * self._shape.sample(how, center.size, center.dtype)

    @eqx.filter_jit
    def mean(self) -> Float[Array, "d"]:
        """That of the points."""
        return matmul(self.weights, self.points)

    # ------------------------------------------------------------------------------------------ what `fit` asks

    def leave_one_out(self, weights: Float[Array, "n"] | None = None) -> Float[Array, "n"]:
        r"""$\log p_{-i}(x_i)$: the score of each point by all others, in one pass over all pairs.

        `weights` multiply those of the points: a weight of zero takes a point out of every other's density.
        """
        return _leave_one_out(self, jnp.ones_like(self.weights) if weights is None else weights)

    def log_likelihood(self, data: Float[Array, "n d"], weights: Float[Array, "n"]) -> Scalar:
        """Leave-one-out log-likelihood of the density's own points, each as often as its weight among n says."""
        times = weights * self.weights * self.weights.size
        return pairwise_dot(times, self.leave_one_out(weights))

    def log_prior(self) -> Scalar:
        return jnp.zeros((), self.points.dtype)

    def validate(self, data: Any) -> None:
        check_rank("data", data, 2, f"(n, {self.points.shape[1]})")
        same = data.shape == self.points.shape
        if is_concrete(data, self.points):
            same = same and np.array_equal(np.asarray(data), np.asarray(self.points))
        if not same:
            raise ValueError(
                "a kernel density learns its bandwidth from its own points, left out one by one: fit it to the data it "
                "was made from. Other data are scored by log_probs."
            )
        if data.shape[0] < 2:
            raise ValueError("leaving one point out needs at least two.")

    def degenerate(self) -> Flag:
        """The bandwidth has collapsed to the resolution of the points."""
        spread = jnp.max(jnp.abs(self.points - middle(self.points)[None]))
        return jnp.any(self.bandwidth <= 64 * jnp.finfo(spread.dtype).eps * spread)


@eqx.filter_jit
def _by_rule(xs: Array, weights: Array, rule: str) -> Float[Array, "d"]:
    d = xs.shape[1]
    start = middle(xs)
    mean = start + matmul(weights, xs - start[None])
    crowd = jnp.sum(weights**2)
    variance = matmul(weights, (xs - mean[None]) ** 2) / (1 - crowd)
    count = 1 / crowd if rule == "scott" else (d + 2) / (4 * crowd)
    return jnp.sqrt(variance) * count ** (-1 / (d + 4))


def _log_sums(density: KernelDensity, xs: Array, weights: Array, same: bool) -> Array:
    shape = density._shape
    scaled = density._scaled(density.points)
    rows = scaled if same else density._scaled(xs)
    options = {"in_logs": shape.in_logs, "cube": shape.cube, "same": same}
    return pairs.log_kernel_sums(rows, scaled, weights, shape.profile, **options) - density._log_constant()


@eqx.filter_jit
def _log_probs(density: KernelDensity, xs: Array) -> Array:
    plain = lambda xs: _log_sums(density, xs, density.weights, same=False)
    if density.kernel == "gaussian":
        return jax.lax.cond(missing_in_batch(xs), lambda xs: _marginal_log_probs(density, xs), plain, xs)
    gap = jnp.any(jnp.isnan(xs), axis=1)
    return jnp.where(gap, jnp.nan, plain(jnp.where(gap[:, None], 0, xs)))


def _marginal_log_probs(density: KernelDensity, xs: Array) -> Array:
    """Gaussian bumps in the coordinates that each event shows."""
    points, log_weights = density._scaled(density.points), safe_log(density.weights)
    n, d = points.shape
    volumes = jnp.log(jnp.broadcast_to(density.bandwidth, (d,))) + 0.5 * LOG_2PI

    def of_block(rows):
        seen = ~jnp.isnan(rows)
        apart = jnp.where(seen, rows, 0)[:, None, :] - points[None]
        squared = jnp.sum(jnp.where(seen[:, None, :], apart, 0) ** 2, axis=2)
        return logsumexp(log_weights[None] - 0.5 * squared, axis=1) - matmul(seen.astype(rows.dtype), volumes)

    return pairs.by_rows(of_block, density._scaled(xs), pairs.rows_at_once(n * d))


@eqx.filter_jit
def _leave_one_out(density: KernelDensity, weights: Array) -> Array:
    mass = weights * density.weights
    others = jnp.sum(mass) - mass
    return _log_sums(density, density.points, mass, same=True) - jnp.log(jnp.where(others > 0, others, jnp.inf))

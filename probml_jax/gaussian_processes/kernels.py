"""Covariance functions: modules on one pair of inputs, composed by `+`, `*` and scaling."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import param, positive
from .._linalg import matmul, symmetric
from .._typing import Scalar
from .._validate import check_positive, check_shape
from .composition import AbstractKernel as AbstractKernel
from .composition import AbstractPairKernel as AbstractPairKernel
from .composition import ActiveDims as ActiveDims
from .composition import Constant as Constant
from .composition import Frozen as Frozen
from .composition import Inputs
from .composition import Product as Product
from .composition import Scaled as Scaled
from .composition import Sum as Sum
from .composition import Warped as Warped
from .radial import distance, matern12, matern32, matern52, squared_distances

# ---------------------------------------------------------------------------------------------- stationary


class AbstractStationary(AbstractKernel):
    r"""A function of the Euclidean distance in units of `length_scale`, one for all dimensions or one for each (ARD).

    Distances are sums of squared differences, exactly symmetric and exactly zero on the diagonal, in float32 too.
    """

    length_scale: eqx.AbstractVar[Float[Array, "*d"]]

    @abstractmethod
    def profile(self, squared: Array) -> Array:
        """The kernel as a function of the squared scaled distance."""

    def _scaled(self, xs: Array) -> Array:
        if self.length_scale.ndim and self.length_scale.shape != xs.shape[1:]:
            d = self.length_scale.shape
            raise ValueError(f"x has shape {tuple(xs.shape)}; length_scale of shape {d} wants (n, {d[0]}).")
        return xs / (self.length_scale[None] if self.length_scale.ndim else self.length_scale)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.profile(squared_distances(self._scaled(xs), self._scaled(zs)))

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        scaled = self._scaled(xs)
        return self.profile(squared_distances(scaled, scaled))

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jnp.ones(xs.shape[0], self.length_scale.dtype)


class RBF(AbstractStationary):
    r"""$\exp(-\tfrac12 r^2)$ with $r = |x - z| / \ell$: infinitely smooth functions.

    >>> RBF(2.0)(jnp.zeros(3), jnp.array([2.0, 0.0, 0.0])).round(4)
    Array(0.6065, dtype=...)
    """

    length_scale: Float[Array, "*d"] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("length_scale", self.length_scale)

    def profile(self, squared: Array) -> Array:
        return jnp.exp(-0.5 * squared)


class Matern12(AbstractStationary):
    r"""$\exp(-r)$: continuous, nowhere differentiable functions (Ornstein-Uhlenbeck in one dimension).

    >>> round(float(Matern12(2.0)(jnp.zeros(1), jnp.array([2.0]))), 4)
    0.3679
    """

    length_scale: Float[Array, "*d"] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("length_scale", self.length_scale)

    def profile(self, squared: Array) -> Array:
        return matern12(squared)


class Matern32(AbstractStationary):
    r"""$(1 + \sqrt3 r)\exp(-\sqrt3 r)$: once differentiable functions."""

    length_scale: Float[Array, "*d"] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("length_scale", self.length_scale)

    def profile(self, squared: Array) -> Array:
        return matern32(squared)


class Matern52(AbstractStationary):
    r"""$(1 + \sqrt5 r + \tfrac53 r^2)\exp(-\sqrt5 r)$: twice differentiable functions."""

    length_scale: Float[Array, "*d"] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("length_scale", self.length_scale)

    def profile(self, squared: Array) -> Array:
        return matern52(squared)


class RationalQuadratic(AbstractStationary):
    r"""$(1 + r^2/2\alpha)^{-\alpha}$: RBF kernels of many length scales.

    >>> round(float(RationalQuadratic(1.0, alpha=1.0)(jnp.zeros(1), jnp.array([2.0]))), 4)
    0.3333
    """

    length_scale: Float[Array, "*d"] = param(positive, default=1.0)
    alpha: Float[Array, ""] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("length_scale", self.length_scale)
        check_positive("alpha", self.alpha)

    def profile(self, squared: Array) -> Array:
        return jnp.exp(-self.alpha * jnp.log1p(squared / (2 * self.alpha)))


class Periodic(AbstractKernel):
    r"""$\exp(-2\sin^2(\pi|x - z|/p)/\ell^2)$ of the Euclidean distance: functions that repeat with period $p$.

    In more than one dimension use one input each (`ActiveDims`) and multiply: a distance does not repeat.

    >>> round(float(Periodic(1.0, period=2.0)(jnp.zeros(1), jnp.array([4.0]))), 4)
    1.0
    """

    length_scale: Float[Array, ""] = param(positive, default=1.0)
    period: Float[Array, ""] = param(positive, default=1.0)

    def __check_init__(self):
        check_shape("length_scale", self.length_scale, ())
        check_shape("period", self.period, ())
        check_positive("length_scale", self.length_scale)
        check_positive("period", self.period)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        turns = distance(squared_distances(xs, zs)) / self.period
        return jnp.exp(-2 * jnp.sin(jnp.pi * turns) ** 2 / self.length_scale**2)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.cross(xs, xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jnp.ones(xs.shape[0], self.length_scale.dtype)


# ---------------------------------------------------------------------------------------------- not stationary


class Linear(AbstractKernel):
    r"""$\sigma^2 x^\top z$, with one variance for all inputs or one for each: straight lines through the origin."""

    variance: Float[Array, "*d"] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("variance", self.variance)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return jnp.sum(self.variance * x * z)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return matmul(xs * (self.variance[None] if self.variance.ndim else self.variance), zs.T)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return symmetric(self.cross(xs, xs))

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jnp.sum((self.variance[None] if self.variance.ndim else self.variance) * xs**2, axis=1)


class Polynomial(AbstractKernel):
    r"""$(x^\top z + c)^q$: polynomials of degree $q$.

    >>> Polynomial(degree=2, offset=1.0)(jnp.ones(1), jnp.array([2.0])).item()
    9.0
    """

    degree: int = eqx.field(static=True, default=2)
    offset: Float[Array, ""] = param(positive, default=1.0)

    def __check_init__(self):
        if self.degree < 1:
            raise ValueError(f"degree must be at least 1; got {self.degree}.")
        check_positive("offset", self.offset)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return (jnp.sum(x * z) + self.offset) ** self.degree

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return (matmul(xs, zs.T) + self.offset) ** self.degree

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return symmetric(self.cross(xs, xs))

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return (jnp.sum(xs**2, axis=1) + self.offset) ** self.degree


class White(AbstractKernel):
    r"""$\sigma^2$ for an input with itself, 0 for any two inputs of a set: independent noise, also at equal inputs.

    On one pair `kernel(x, z)` can only see values: equal ones count as the same input.

    >>> White(0.5)(jnp.ones(1), jnp.ones(1)).item(), White(0.5)(jnp.ones(1), jnp.zeros(1)).item()
    (0.5, 0.0)
    """

    variance: Float[Array, ""] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("variance", self.variance)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return jnp.where(jnp.all(x == z), self.variance, 0)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return jnp.zeros((xs.shape[0], zs.shape[0]), self.variance.dtype)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.variance * jnp.eye(xs.shape[0], dtype=self.variance.dtype)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jnp.broadcast_to(self.variance, xs.shape[:1])

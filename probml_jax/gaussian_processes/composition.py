"""What a kernel is, and how kernels are composed."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._constraint import fixed, network, param, positive
from .._linalg import symmetric
from .._typing import Scalar
from .._validate import as_float, check_positive

Inputs = Shaped[Array, "_ ..."]


class AbstractKernel(eqx.Module):
    """A positive semi-definite function of two inputs.

    `kernel(x, z)` is one number; `cross(xs, zs)` the matrix of two sets of inputs, `gram(xs)` that of one set with
    itself (exactly symmetric), `diagonal(xs)` its diagonal. `a + b`, `a * b` and `2.0 * a` are kernels again.
    """

    @abstractmethod
    def __call__(self, x: Array, z: Array) -> Scalar:
        """$k(x, z)$."""

    @abstractmethod
    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        """$k(x_i, z_j)$ for different sets of inputs."""

    @abstractmethod
    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        """$k(x_i, x_j)$."""

    @abstractmethod
    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        """$k(x_i, x_i)$."""

    def __add__(self, other: Any) -> "Sum":
        return Sum(self, as_kernel(other))

    def __radd__(self, other: Any) -> "Sum":
        return Sum(as_kernel(other), self)

    def __mul__(self, other: Any) -> "AbstractKernel":
        return Product(self, other) if isinstance(other, AbstractKernel) else Scaled(other, self)

    def __rmul__(self, other: Any) -> "AbstractKernel":
        return Scaled(other, self)


def as_kernel(value: Any) -> AbstractKernel:
    """A kernel as it is; a number as a constant one."""
    return value if isinstance(value, AbstractKernel) else Constant(value)


class AbstractPairKernel(AbstractKernel):
    """A kernel that is only given on one pair: matrices are a `vmap` of it. The base for kernels of your own.

    >>> class Cosine(AbstractPairKernel):
    ...     def __call__(self, x, z):
    ...         return jnp.cos(jnp.sum(x - z))
    >>> Cosine().gram(jnp.zeros((2, 1))).shape
    (2, 2)
    """

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return jax.vmap(lambda x: jax.vmap(lambda z: self(x, z))(zs))(xs)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return symmetric(self.cross(xs, xs))

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jax.vmap(lambda x: self(x, x))(xs)


class Constant(AbstractKernel):
    r"""$\sigma^2$: one unknown level for all inputs.

    >>> Constant(2.0)(jnp.zeros(1), jnp.ones(1)).item()
    2.0
    """

    variance: Float[Array, ""] = param(positive, default=1.0)

    def __check_init__(self):
        check_positive("variance", self.variance)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.variance

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return jnp.broadcast_to(self.variance, (xs.shape[0], zs.shape[0]))

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.cross(xs, xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return jnp.broadcast_to(self.variance, xs.shape[:1])


class Sum(AbstractKernel):
    """`first + second`: the sum of two independent functions.

    >>> (Constant(2.0) + Constant(3.0))(jnp.zeros(1), jnp.ones(1)).item()
    5.0
    """

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.first(x, z) + self.second(x, z)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.first.cross(xs, zs) + self.second.cross(xs, zs)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.first.gram(xs) + self.second.gram(xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return self.first.diagonal(xs) + self.second.diagonal(xs)


class Product(AbstractKernel):
    """`first * second`: one function modulated by another.

    >>> (Constant(2.0) * Constant(3.0))(jnp.zeros(1), jnp.ones(1)).item()
    6.0
    """

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.first(x, z) * self.second(x, z)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.first.cross(xs, zs) * self.second.cross(xs, zs)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.first.gram(xs) * self.second.gram(xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return self.first.diagonal(xs) * self.second.diagonal(xs)


class Scaled(AbstractKernel):
    """`variance * kernel`.

    >>> (3.0 * Constant(2.0))(jnp.zeros(1), jnp.ones(1)).item()
    6.0
    """

    variance: Float[Array, ""] = param(positive)
    kernel: AbstractKernel

    def __check_init__(self):
        check_positive("variance", self.variance)

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.variance * self.kernel(x, z)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.variance * self.kernel.cross(xs, zs)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.variance * self.kernel.gram(xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return self.variance * self.kernel.diagonal(xs)


class Warped(AbstractKernel):
    """A kernel of what `network` makes of each input: a deep kernel with any Equinox network, or any function of one
    input. The network's arrays train with the rest; pass `pml.fixed` functions as plain callables to keep them.

    >>> from probml_jax.gaussian_processes.kernels import RBF
    >>> doubled = Warped(RBF(1.0), lambda x: 2 * x)
    >>> bool(doubled(jnp.zeros(1), jnp.ones(1)) == RBF(0.5)(jnp.zeros(1), jnp.ones(1)))
    True
    """

    kernel: AbstractKernel
    network: Callable[[Array], Array] = network()

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.kernel(self.network(x), self.network(z))

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.kernel.cross(jax.vmap(self.network)(xs), jax.vmap(self.network)(zs))

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.kernel.gram(jax.vmap(self.network)(xs))

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return self.kernel.diagonal(jax.vmap(self.network)(xs))


def ActiveDims(kernel: AbstractKernel, dims: tuple[int, ...] | list[int]) -> Warped:
    """The kernel of some of the input's dimensions.

    >>> from probml_jax.gaussian_processes.kernels import RBF
    >>> bool(ActiveDims(RBF(1.0), [1])(jnp.array([5.0, 1.0]), jnp.array([9.0, 1.0])) == 1)
    True
    """
    return Warped(kernel, _Take(tuple(dims)))


class _Take(eqx.Module):
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        if not all(-x.size <= i < x.size for i in self.dims):
            raise ValueError(f"dims are {self.dims}; the input has {x.size} dimensions.")
        return jnp.stack([x[i] for i in self.dims])


class Frozen(AbstractKernel):
    """A kernel whose parameters do not train.

    >>> import probml_jax as pml
    >>> pml.num_parameters(Frozen(Constant(2.0)))
    0
    """

    kernel: AbstractKernel = fixed()

    def __call__(self, x: Array, z: Array) -> Scalar:
        return self.kernel(x, z)

    def cross(self, xs: Inputs, zs: Inputs) -> Float[Array, "n m"]:
        return self.kernel.cross(xs, zs)

    def gram(self, xs: Inputs) -> Float[Array, "n n"]:
        return self.kernel.gram(xs)

    def diagonal(self, xs: Inputs) -> Float[Array, "n"]:
        return self.kernel.diagonal(xs)


def as_inputs(xs: Any, name: str = "x") -> Array:
    """Inputs with a leading axis of points; a vector of n numbers is n points in one dimension."""
    xs = as_float(xs, name)
    if xs.ndim == 0:
        raise ValueError(f"{name} is a single number; wanted (n, d), or (n,) in one dimension.")
    return xs[:, None] if xs.ndim == 1 else xs

"""Kernels of scikit-learn as kernels of this library, and the way back for learned parameters."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels as theirs

from ..gaussian_processes import kernels as ours
from ..gaussian_processes.kernels import AbstractKernel

_MATERN = {0.5: ours.Matern12, 1.5: ours.Matern32, 2.5: ours.Matern52, np.inf: ours.RBF}
_OFFERED = "RBF, Matern (nu 0.5, 1.5, 2.5, inf), Constant-, WhiteKernel, RationalQuadratic, ExpSineSquared, DotProduct"


def as_kernel(given: Any, dtype: Any) -> AbstractKernel:
    """A kernel of either library as one of ours, in the precision of the data."""
    if isinstance(given, theirs.Kernel):
        return built(given, jnp.asarray(given.theta, dtype))
    if not isinstance(given, AbstractKernel):
        raise TypeError(
            "kernel must be one of probml_jax.gaussian_processes.kernels or of scikit-learn; "
            f"got {type(given).__name__}."
        )
    return jax.tree_util.tree_map(lambda a: jnp.asarray(a, dtype) if eqx.is_inexact_array_like(a) else a, given)


def built(given: theirs.Kernel, theta: Any) -> AbstractKernel:
    """scikit-learn's kernel as ours, with logarithms of its free parameters in scikit-learn's order; of what is
    "fixed" nothing trains. `TypeError` for kernels that have no counterpart."""
    if isinstance(given, (theirs.Sum, theirs.Product)):
        first, second = built(given.k1, theta[: given.k1.n_dims]), built(given.k2, theta[given.k1.n_dims :])
        return first + second if isinstance(given, theirs.Sum) else first * second
    values = _values(given, theta)
    match given:
        case theirs.Matern() if given.nu in _MATERN:
            kernel = _MATERN[given.nu](values["length_scale"])
        case theirs.RBF() if not isinstance(given, theirs.Matern):
            kernel = ours.RBF(values["length_scale"])
        case theirs.ConstantKernel():
            kernel = ours.Constant(values["constant_value"])
        case theirs.WhiteKernel():
            kernel = ours.White(values["noise_level"])
        case theirs.RationalQuadratic():
            kernel = ours.RationalQuadratic(values["length_scale"], values["alpha"])
        case theirs.ExpSineSquared():
            kernel = ours.Periodic(values["length_scale"], values["periodicity"])
        case theirs.DotProduct():
            kernel = ours.Constant(values["sigma_0"] ** 2) + ours.Frozen(ours.Linear(jnp.ones((), theta.dtype)))
        case _:
            raise TypeError(f"The kernel {given} has no counterpart here; there are {_OFFERED}, sums and products.")
    return kernel if given.n_dims else ours.Frozen(kernel)


def _values(given: theirs.Kernel, theta: Any) -> dict[str, Any]:
    """Parameters by name: from their logarithms, or as they are fixed."""
    named, fixed = given.hyperparameters, [one.fixed for one in given.hyperparameters]
    if any(fixed) and not all(fixed):
        raise TypeError(f"The kernel {given} has a fixed parameter and a free one; here a kernel is fixed as a whole.")
    sizes = np.cumsum([0, *(one.n_elements for one in named)])
    if all(fixed):
        return {one.name: jnp.asarray(getattr(given, one.name), theta.dtype) for one in named}
    parts = [jnp.exp(theta[i:j]) for i, j in itertools.pairwise(sizes)]
    return {one.name: p if one.n_elements > 1 else p[0] for one, p in zip(named, parts, strict=True)}


def theta_of(given: theirs.Kernel, kernel: Any) -> np.ndarray:
    """The logarithms of free parameters of ours, in the order of scikit-learn's kernel that it was built from."""
    if given.n_dims == 0:
        return np.zeros(0)
    if isinstance(given, (theirs.Sum, theirs.Product)):
        return np.concatenate([theta_of(given.k1, kernel.first), theta_of(given.k2, kernel.second)])
    match given:
        case theirs.ConstantKernel() | theirs.WhiteKernel():
            values = [kernel.variance]
        case theirs.RationalQuadratic():
            values = [kernel.alpha, kernel.length_scale]
        case theirs.ExpSineSquared():
            values = [kernel.length_scale, kernel.period]
        case theirs.DotProduct():
            values = [np.sqrt(kernel.first.variance)]
        case _:
            values = [kernel.length_scale]
    return np.log(np.concatenate([np.ravel(value) for value in values]))


def as_given(given: Any, kernel: AbstractKernel) -> Any:
    """A learned kernel in the library in which it was given."""
    return given.clone_with_theta(theta_of(given, kernel)) if isinstance(given, theirs.Kernel) else kernel

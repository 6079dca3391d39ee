"""Gaussian-process regression: a prior over functions that observations turn into another one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._constraint import fixed, network, param, positive
from .._linalg import cholesky, matmul
from .._model import AbstractModel
from .._special import LOG_2PI
from .._typing import Data, Flag, PRNGKey, Scalar
from .._validate import as_float, check_finite, check_rank, float_dtype, is_concrete
from ..inference.evidence import log_density
from . import recursion
from .composition import AbstractKernel, as_inputs, as_kernel
from .evidence import AbstractEvidence, LeaveOneOut, factorized, noisy_gram
from .means import as_mean
from .state_space import markov

_SOLVERS = ("auto", "cholesky", "state_space")
_LONG = 256  # from here on recursions over ordered inputs are quicker than a factorization


class GaussianProcess(AbstractModel):
    r"""$f \sim GP(m, k)$, $y_i = f(x_i) + N(0, \sigma^2)$.

    - `kernel`: the covariance function, composed from `gaussian_processes.kernels`.
    - `noise`: the variance $\sigma^2$ of observations; 0 for none, and then it does not train.
    - `mean_function`: a number, a module of `means`, any function or Equinox network of one input; zero by default.
    - `prior`: a function of the process whose value, a log density of its parameters, is added to the objective.
    - `solver`: "cholesky", or "state_space" for kernels of one input that have such a form (Matérn and their sums and
      products; periodic ones approximately): $O(n)$ instead of $O(n^3)$. "auto" takes it where it is exact and pays.
    - `parallel`: run the state-space solver's recursions as associative scans, for accelerators.

    `condition(x, y)` gives a `GaussianProcess` again. The data set is one unit: `fit` learns from `(x, y)` with inputs
    `x (n, d)` (or `(n,)`) and `y (n,)`, where NaN is missing; a weight counts its observation that many times.

    Cost: $n^3/3$ to condition or score, five times that with gradients; $n^2$ numbers.
    Reference: Rasmussen and Williams (2006), algorithm 2.1.

    >>> from probml_jax.gaussian_processes import kernels
    >>> x = jnp.linspace(0.0, 1.0, 5)
    >>> post = GaussianProcess(1.0 * kernels.RBF(0.3), noise=1e-2).condition(x, jnp.sin(6 * x))
    >>> post.mean(jnp.array([0.25])).round(1), bool(post.variance(jnp.array([0.25]))[0] < 0.1)
    (Array([1.], dtype=...), True)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    noise: Float[Array, ""] = param(positive, default=0.0)
    mean_function: Callable[[Array], Array] = network(default=None, converter=as_mean)
    prior: Callable[["GaussianProcess"], Array] | None = fixed(default=None)
    solver: str = eqx.field(static=True, default="auto")
    parallel: bool = eqx.field(static=True, default=False)
    evidence: AbstractEvidence | None = fixed(default=None)

    def __check_init__(self):
        if is_concrete(self.noise) and not float(self.noise) >= 0:
            raise ValueError(f"noise must be a variance, zero or more; got {float(self.noise):.6g}.")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(map(repr, _SOLVERS))}; got {self.solver!r}.")

    # ------------------------------------------------------------------------------------------ the function

    def _prior_mean(self, xs: Array) -> Float[Array, "m"]:
        return jax.vmap(self.mean_function)(xs)

    def mean(self, x: Any) -> Float[Array, "m"]:
        """$E f(x)$ at each input."""
        return _mean(self, as_inputs(x))

    def variance(self, x: Any) -> Float[Array, "m"]:
        r"""$\mathrm{Var} f(x)$ at each input, without the covariances between them; add `noise` for observations."""
        return _variance(self, as_inputs(x))

    def covariance(self, x: Any) -> Float[Array, "m m"]:
        r"""$\mathrm{Cov}(f(x_i), f(x_j))$."""
        return _covariance(self, as_inputs(x))

    def sample(self, key: PRNGKey, x: Any) -> Float[Array, "m"]:
        """One draw of the function at some inputs together; many are a `vmap` over keys."""
        return _sample(self, key, as_inputs(x))

    # ------------------------------------------------------------------------------------------ observations

    def condition(self, x: Any, y: Any, noise: Any = None) -> "GaussianProcess":
        """The process given observations (more observations, if it has some already: $O(n^2)$ each).

        `noise` is their variance, one for all or one for each; that of the process when it is not given. Nothing is
        refused for being singular: equal inputs without noise are helped by the smallest jitter, which `jitter` shows.
        """
        x, y = as_pairs((x, y))
        check_finite("x", x, nan=False)
        check_finite("y", y)
        spread = self.noise if noise is None else as_float(noise, "noise").astype(y.dtype)
        if spread.ndim and spread.shape != y.shape:
            raise ValueError(f"noise has shape {spread.shape}; wanted one variance, or {y.shape}.")
        if is_concrete(spread) and not np.all(np.asarray(spread) >= 0):
            raise ValueError(f"noise must be variances, zero or more; got {float(np.min(spread)):.6g}.")
        return _conditioned(self, x, y, jnp.broadcast_to(spread, y.shape))

    @property
    def jitter(self) -> Float[Array, ""]:
        """What had to be added to the observations' covariance: 0 if nothing, NaN if nothing helped."""
        return jnp.zeros(()) if self.evidence is None else self.evidence.jitter

    def leave_one_out(self) -> LeaveOneOut:
        """Each observation predicted from all others, from one factorization: Rasmussen and Williams, section 5.4.2."""
        if self.evidence is None:
            raise ValueError("leave_one_out needs observations: condition the process first.")
        return _leave_one_out(self, self.evidence)

    def log_prob(self, datum: Data) -> Scalar:
        r"""$\log p(y)$ of noisy observations `(x, y)` together, given what the process has seen."""
        x, y = as_pairs(datum)
        return self.log_likelihood((x, y), jnp.ones_like(y))

    # ------------------------------------------------------------------------------------------ what `fit` asks

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        x, y = as_pairs(data)
        seen = ~jnp.isnan(y) & (weights > 0)
        # w equal observations tell of the function what one with a w-th of the noise does
        times = jnp.where(seen, weights, 1)
        noise = self.noise / times
        spread = jnp.where(times == 1, 0, (times - 1) * (jnp.log(_positive(self.noise)) + LOG_2PI) + jnp.log(times))
        residual = jnp.where(seen, y - _mean(self, x), jnp.nan)
        return _log_density(self, x, residual, noise) - 0.5 * jnp.sum(jnp.where(seen, spread, 0))

    def log_prior(self) -> Scalar:
        return jnp.zeros((), float_dtype(self)) if self.prior is None else self.prior(self)

    def validate(self, data: Data) -> None:
        if self.evidence is not None:
            raise ValueError("fit learns the parameters of a prior process: pass the one before `condition`.")
        x, y = as_pairs(data)
        check_finite("x", x, nan=False)
        check_finite("y", y)

    def degenerate(self) -> Flag:
        return jnp.array(False)


def as_pairs(data: Data) -> tuple[Array, Array]:
    """Inputs with their axes, and as many observations; `ValueError` names what is wrong."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError("data must be a pair (x, y): inputs (n, d) and observations (n,).")
    x, y = as_inputs(data[0]), as_float(data[1], "y")
    check_rank("y", y, 1, "(n,): one number per input")
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"x has {x.shape[0]} inputs and y {y.shape[0]} observations; wanted as many.")
    if y.shape[0] == 0:
        raise ValueError("y is empty: at least one observation is wanted.")
    return x, y


def _positive(x: Array) -> Array:
    return jnp.where(x > 0, x, 1)


def _by_recursion(gp: GaussianProcess, x: Array) -> bool:
    """Whether observations at these inputs go through the state-space form."""
    form = None if gp.solver == "cholesky" or x.shape[1:] != (1,) else markov(gp.kernel)
    if gp.solver == "state_space" and form is None:
        raise ValueError("solver='state_space' needs one-dimensional inputs and a kernel with such a form (Matern).")
    return form is not None and (gp.solver == "state_space" or (form.exact and x.shape[0] >= _LONG))


def _log_density(gp: GaussianProcess, x: Array, residual: Array, noise: Array) -> Scalar:
    if gp.evidence is None and _by_recursion(gp, x):
        return recursion.log_density(gp.kernel, x, residual, noise, gp.parallel)
    seen = ~jnp.isnan(residual)
    if gp.evidence is None:
        covariance = noisy_gram(gp.kernel, x, noise, seen)
    else:
        eye = jnp.eye(x.shape[0], dtype=residual.dtype)
        covariance = jnp.where(seen[:, None] & seen[None], _covariance(gp, x) + eye * noise[None, :], eye)
    # what is not seen has variance one and residual zero: nothing but a constant
    return log_density(covariance, jnp.where(seen, residual, 0)) + 0.5 * LOG_2PI * jnp.sum(~seen)


@eqx.filter_jit
def _conditioned(gp: GaussianProcess, x: Array, y: Array, noise: Array) -> GaussianProcess:
    residual = y - gp._prior_mean(x)
    if gp.evidence is not None:
        evidence = gp.evidence.extended(gp.kernel, x, residual, noise)
    elif _by_recursion(gp, x):
        evidence = recursion.conditioned(gp.kernel, x, residual, noise, gp.parallel)
    else:
        evidence = factorized(gp.kernel, x, residual, noise)
    return eqx.tree_at(lambda g: g.evidence, gp, evidence, is_leaf=lambda a: a is None)


@eqx.filter_jit
def _mean(gp: GaussianProcess, x: Array) -> Array:
    prior = gp._prior_mean(x)
    return prior if gp.evidence is None else prior + gp.evidence.mean(gp.kernel, x)


@eqx.filter_jit
def _variance(gp: GaussianProcess, x: Array) -> Array:
    return gp.kernel.diagonal(x) if gp.evidence is None else gp.evidence.variance(gp.kernel, x)


@eqx.filter_jit
def _covariance(gp: GaussianProcess, x: Array) -> Array:
    return gp.kernel.gram(x) if gp.evidence is None else gp.evidence.covariance(gp.kernel, x)


@eqx.filter_jit
def _sample(gp: GaussianProcess, key: PRNGKey, x: Array) -> Array:
    covariance = _covariance(gp, x)
    return _mean(gp, x) + matmul(cholesky(covariance).factor, jr.normal(key, x.shape[:1], covariance.dtype))


@eqx.filter_jit
def _leave_one_out(gp: GaussianProcess, evidence: AbstractEvidence) -> LeaveOneOut:
    found = evidence.leave_one_out(gp.kernel)
    return found._replace(mean=found.mean + gp._prior_mean(evidence.xs))

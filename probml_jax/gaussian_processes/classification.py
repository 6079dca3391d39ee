"""Gaussian-process classification by Laplace's approximation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._constraint import fixed
from .._model import AbstractModel
from .._typing import Data, Flag, Scalar
from .._validate import check_finite, check_labels, check_rank, float_dtype
from ..inference import laplace
from ..inference.averages import expected_sigmoid, expected_softmax
from .composition import AbstractKernel, as_inputs, as_kernel

_LINKS = {"logit": jax.nn.log_sigmoid, "probit": jax.scipy.stats.norm.logcdf}


class _Seen(eqx.Module):
    """Inputs, and the Gaussian that stands for the posterior of the latent values there."""

    xs: Array
    latent: laplace.Binary | laplace.Softmax


class GaussianProcessClassifier(AbstractModel):
    r"""Labels from latent functions $f \sim GP(0, k)$: $p(y=1 \mid x) = \sigma(f(x))$, or for more than two classes
    $p(y=c \mid x) \propto e^{f_c(x)}$ with one function and the same kernel for each class.

    - `link`: "logit" (logistic) or "probit", for two classes.
    - `prior`: a function of the classifier whose value, a log density of its parameters, is added to the objective.

    The posterior of the functions is Laplace's approximation. `fit` climbs the approximate evidence with gradients by
    the implicit function theorem; a weight counts its label that many times, and a label of -1 is unobserved.
    `condition(x, y)` gives a classifier that answers `probs`, averaged over the posterior, not plugged in.

    Cost: $n^3/3$ flops per Newton step, some ten steps; $c + 1$ times that for c > 2 classes.
    Reference: Rasmussen and Williams (2006), sections 3.4, 3.5 and 5.5.

    >>> from probml_jax.gaussian_processes import kernels
    >>> x = jnp.array([-2.0, -1.0, 1.0, 2.0])
    >>> fitted = GaussianProcessClassifier(4.0 * kernels.RBF(1.0)).condition(x, jnp.array([0, 0, 1, 1]))
    >>> fitted.predict(jnp.array([-1.5, 1.5])).tolist()
    [0, 1]
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    num_classes: int = eqx.field(static=True, default=2)
    link: str = eqx.field(static=True, default="logit")
    prior: Callable[["GaussianProcessClassifier"], Array] | None = fixed(default=None)
    evidence: _Seen | None = fixed(default=None)

    def __check_init__(self):
        if self.num_classes < 2:
            raise ValueError(f"num_classes must be at least 2; got {self.num_classes}.")
        if self.link not in _LINKS:
            raise ValueError(f"link must be 'logit' or 'probit'; got {self.link!r}.")
        if self.num_classes > 2 and self.link != "logit":
            raise ValueError(f"link={self.link!r} is for two classes; more than two have the softmax.")

    def _approximated(self, x: Array, y: Array, counts: Array) -> laplace.Binary | laplace.Softmax:
        gram = self.kernel.gram(x)
        counts = jnp.where(y < 0, 0, counts).astype(gram.dtype)
        if self.num_classes > 2:
            labels = (jnp.arange(self.num_classes)[:, None] == y[None]).astype(gram.dtype)
            return laplace.softmax(gram, labels, counts)
        sign, log_probability = jnp.where(y == 1, 1.0, -1.0).astype(gram.dtype), _LINKS[self.link]
        return laplace.binary(gram, lambda f: counts * log_probability(sign * f))

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        x, y = self._data(data)
        return self._approximated(x, y, weights).log_evidence

    def log_prob(self, datum: Data) -> Scalar:
        """Laplace's approximation to the log evidence of a data set `(x, y)`."""
        x, y = self._data(datum)
        return _log_evidence(self, x, y)

    def condition(self, x: Any, y: Any, weights: Any = None) -> "GaussianProcessClassifier":
        """The classifier given labels: `probs`, `predict` and `latent` then answer from the posterior."""
        x, y = self._data((x, y))
        check_labels("y", y, self.num_classes)
        check_finite("x", x, nan=False)
        counts = jnp.ones(y.shape, x.dtype) if weights is None else jnp.asarray(weights, x.dtype)
        return _conditioned(self, x, y, counts)

    def latent(self, x: Any) -> tuple[Array, Array]:
        """Posterior means and variances `(m,)` of the function, or means `(m, c)` and covariances `(m, c, c)`."""
        return _latent(self, self._known(), as_inputs(x))

    def probs(self, x: Any, num_points: int = 512) -> Float[Array, "m c"]:
        """Class probabilities, averaged over the posterior of the functions.

        Two classes: to about twelve digits. More: over `num_points` evenly spread points, within about a percent.
        """
        return _probs(self, self._known(), as_inputs(x), num_points)

    def predict(self, x: Any) -> Int[Array, "m"]:
        """The most probable class."""
        return jnp.argmax(self.probs(x), axis=1)

    def log_prior(self) -> Scalar:
        return jnp.zeros((), float_dtype(self)) if self.prior is None else self.prior(self)

    def validate(self, data: Data) -> None:
        if self.evidence is not None:
            raise ValueError("fit learns the parameters of a prior: pass the classifier before `condition`.")
        x, y = self._data(data)
        check_finite("x", x, nan=False)
        check_labels("y", y, self.num_classes)

    def degenerate(self) -> Flag:
        return jnp.array(False)

    def _known(self) -> _Seen:
        if self.evidence is None:
            raise ValueError("the classifier has seen no labels yet: condition it first.")
        return self.evidence

    def _data(self, data: Data) -> tuple[Array, Array]:
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise ValueError("data must be a pair (x, y): inputs (n, d) and labels (n,).")
        x, y = as_inputs(data[0]), jnp.asarray(data[1])
        check_rank("y", y, 1, "(n,): one label per input")
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"x has {x.shape[0]} inputs and y {y.shape[0]} labels; wanted as many.")
        if y.shape[0] == 0:
            raise ValueError("y is empty: at least one label is wanted.")
        return x, y


@eqx.filter_jit
def _log_evidence(model: GaussianProcessClassifier, x: Array, y: Array) -> Scalar:
    return model._approximated(x, y, jnp.ones(y.shape, x.dtype)).log_evidence


@eqx.filter_jit
def _conditioned(model: GaussianProcessClassifier, x: Array, y: Array, counts: Array) -> GaussianProcessClassifier:
    seen = _Seen(x, model._approximated(x, y, counts))
    return eqx.tree_at(lambda m: m.evidence, model, seen, is_leaf=lambda a: a is None)


@eqx.filter_jit
def _latent(model: GaussianProcessClassifier, seen: _Seen, x: Array) -> tuple[Array, Array]:
    moments = laplace.binary_moments if model.num_classes == 2 else laplace.softmax_moments
    return moments(seen.latent, model.kernel.cross(seen.xs, x), model.kernel.diagonal(x))


@eqx.filter_jit
def _probs(model: GaussianProcessClassifier, seen: _Seen, x: Array, num_points: int) -> Array:
    mean, spread = _latent(model, seen, x)
    if model.num_classes > 2:
        return expected_softmax(mean, spread, num_points)
    if model.link == "probit":
        second = jax.scipy.stats.norm.cdf(mean / jnp.sqrt(1 + spread))
    else:
        second = expected_sigmoid(mean, spread)
    return jnp.stack([1 - second, second], axis=1)

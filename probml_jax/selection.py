"""Choosing a model: information criteria, held-out likelihood, variational evidence, and tables of them."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._constraint import num_parameters, perturbed
from ._estimate import Bayes
from ._fit import AbstractMethod, Fit, Status, best_of, fit
from ._model import AbstractModel
from ._special import pairwise_dot, xlogy
from ._typing import Array, Data, PRNGKey, Scalar
from ._validate import as_data, as_weights, check_units, float_dtype
from .gaussian_processes import GaussianProcess
from .gaussian_processes.kernels import AbstractKernel
from .methods import LBFGS
from .mixtures.build import gaussian_mixture
from .mixtures.mixture import Mixture


def _ready(model: AbstractModel, data: Data, weights: Any) -> tuple[Data, Any]:
    data = as_data(data)
    model.validate(data)
    return data, as_weights(weights, check_units(data), float_dtype(model))


@eqx.filter_jit
def _log_likelihood(model: AbstractModel, data: Data, weights: Any) -> Scalar:
    return model.log_likelihood(data, weights)


@eqx.filter_jit
def _assignment_entropy(model: Mixture, data: Data, weights: Any) -> Scalar:
    shares, _ = model.responsibilities(data)
    return -pairwise_dot(weights, jnp.sum(xlogy(shares, shares), axis=0))


def bic(model: AbstractModel, data: Data, weights: Any = None) -> Scalar:
    r"""Bayesian information criterion $-2\log L + p\log n$; lower is better. $n$ is the total weight.

    Reference: Schwarz (1978).

    >>> import probml_jax as pml
    >>> model = pml.classifiers.softmax_regression(1, 2)
    >>> data = jnp.array([[-1.0], [1.0]]), jnp.array([0, 1])
    >>> round(float(bic(model, data)), 4), num_parameters(model)
    (5.5452, 4)
    """
    data, weights = _ready(model, data, weights)
    return num_parameters(model) * jnp.log(jnp.sum(weights)) - 2 * _log_likelihood(model, data, weights)


def aic(model: AbstractModel, data: Data, weights: Any = None) -> Scalar:
    r"""Akaike information criterion $-2\log L + 2p$; lower is better. Reference: Akaike (1974).

    >>> import probml_jax as pml
    >>> model = pml.classifiers.softmax_regression(1, 2)
    >>> data = jnp.array([[-1.0], [1.0]]), jnp.array([0, 1])
    >>> round(float(aic(model, data)), 4), num_parameters(model)
    (10.7726, 4)
    """
    data, weights = _ready(model, data, weights)
    return 2.0 * num_parameters(model) - 2 * _log_likelihood(model, data, weights)


def icl(model: Mixture, data: Data, weights: Any = None) -> Scalar:
    r"""Integrated completed likelihood: BIC plus twice the entropy of the assignments; lower is better.

    It prefers clusters that do not overlap. Reference: Biernacki, Celeux and Govaert (2000).
    """
    return bic(model, data, weights) + 2 * _assignment_entropy(model, *_ready(model, data, weights))


def held_out(model: AbstractModel, data: Data, weights: Any = None) -> Scalar:
    """Mean log-likelihood per unit of data the model has not seen, under the predictive density of a mixture.

    >>> import probml_jax as pml
    >>> model = pml.classifiers.softmax_regression(1, 2)
    >>> round(float(held_out(model, (jnp.array([[-1.0], [1.0]]), jnp.array([0, 1])))), 4)
    -0.6931
    """
    data, weights = _ready(model, data, weights)
    return _predictive_log_likelihood(model, data, weights) / jnp.sum(weights)


@eqx.filter_jit
def _predictive_log_likelihood(model: AbstractModel, data: Data, weights: Any) -> Scalar:
    scorer = model.predictive() if isinstance(model, Mixture) else model
    return scorer.log_likelihood(data, weights)


def variational_evidence(result: Fit) -> Scalar:
    r"""Lower bound on $\log p(data)$ from a mixture fitted with `Bayes` leaves: the ELBO plus $\log K!$.

    The factor counts the equivalent labelings that the unimodal posterior leaves out. Reference: Bishop (2006),
    section 10.2.4.
    """
    k = result.model.num_components
    return result.final_objective + jax.scipy.special.gammaln(jnp.asarray(k + 1.0, result.objective.dtype))


@dataclasses.dataclass(frozen=True)
class Row:
    """One candidate: its settings, its best fit and what the criteria say of it."""

    settings: dict[str, Any]
    fit: Fit
    log_likelihood: float
    num_parameters: int
    bic: float
    aic: float
    icl: float
    held_out: float
    evidence: float
    agreement: float

    @property
    def status(self) -> str:
        """How the fit ended."""
        return Status(int(self.fit.status)).name


_LOWER_IS_BETTER = ("bic", "aic", "icl")


@dataclasses.dataclass(frozen=True)
class Table:
    """Candidates side by side. `print(table)` shows them; `best("bic")` picks one."""

    rows: tuple[Row, ...]

    def best(self, criterion: str = "bic") -> Row:
        """The winning row; degenerate and failed fits are passed over while there is any other."""
        values = np.array([getattr(row, criterion) for row in self.rows], float)
        values = values if criterion in _LOWER_IS_BETTER else -values
        sound = np.array([row.status in ("converged", "max_steps") for row in self.rows])
        usable = np.isfinite(values) & (sound if sound.any() else True)
        if not usable.any():
            raise ValueError(f"no row has a finite {criterion}.")
        return self.rows[int(np.argmin(np.where(usable, values, np.inf)))]

    def to_dict(self) -> dict[str, list]:
        """Columns, ready for a data frame."""
        names = ["log_likelihood", "num_parameters", "bic", "aic", "icl", "held_out", "evidence", "agreement", "status"]
        columns = {key: [row.settings[key] for row in self.rows] for key in self.rows[0].settings}
        return columns | {name: [getattr(row, name) for row in self.rows] for name in names}

    def __str__(self) -> str:
        columns = {k: v for k, v in self.to_dict().items() if not all(isinstance(x, float) and np.isnan(x) for x in v)}
        show = lambda x: f"{x:.3f}" if isinstance(x, float) else str(x)
        cells = [[name, *map(show, values)] for name, values in columns.items()]
        widths = [max(map(len, column)) for column in cells]
        lines = zip(*[[c.rjust(w) for c in column] for column, w in zip(cells, widths, strict=True)], strict=True)
        return "\n".join("  ".join(line) for line in lines)


def compare(
    key: PRNGKey,
    data: Data,
    build: Callable[..., Mixture],
    grid: Mapping[str, Sequence[Any]],
    *,
    method: AbstractMethod | None = None,
    num_restarts: int = 8,
    test_data: Data | None = None,
    weights: Any = None,
    max_steps: int = 300,
) -> Table:
    """Fit every combination of `grid` from several starts (one `vmap` each) and return the table of criteria.

    `build(key, data, **settings)` makes the starting model. `agreement` is the share of restarts that came within
    0.01 nats per hundred units of the best one: low means that more restarts are wanted. `held_out` is filled when
    `test_data` is given, `evidence` when the leaves are `Bayes`.

    >>> import jax.random as jr, probml_jax as pml
    >>> xs = jnp.array([[1.0], [0.0], [2.0], [9.0], [8.0], [9.0]])
    >>> table = compare(jr.key(2), xs, pml.mixtures.poisson_mixture, {"num_components": [2]}, num_restarts=2)
    >>> table.best("bic").settings
    {'num_components': 2}
    """
    rows = []
    data = as_data(data)
    for i, values in enumerate(itertools.product(*grid.values())):
        settings = dict(zip(grid, values, strict=True))
        keys = jr.split(jr.fold_in(key, i), num_restarts)
        run = lambda k, s=settings: fit(build(k, data, **s), data, method, weights=weights, max_steps=max_steps)
        rows.append(_row(settings, eqx.filter_jit(jax.vmap(run))(keys), data, weights, test_data))
    return Table(tuple(rows))


def _row(settings: dict[str, Any], fits: Fit, data: Data, weights: Any, test_data: Data | None) -> Row:
    best = best_of(fits)
    model = best.model
    ready, w = _ready(model, data, weights)
    close = fits.final_objective >= best.final_objective - 1e-4 * jnp.sum(w)
    return Row(
        settings,
        best,
        float(_log_likelihood(model, ready, w)),
        num_parameters(model),
        float(bic(model, data, weights)),
        float(aic(model, data, weights)),
        float(icl(model, data, weights)),
        float(held_out(model, test_data)) if test_data is not None else float("nan"),
        float(variational_evidence(best)) if isinstance(model.weights, Bayes) else float("nan"),
        float(jnp.mean(close)),
    )


def gaussian_mixture_table(
    key: PRNGKey,
    xs: Data,
    num_components: Sequence[int] = (1, 2, 3, 4, 5),
    covariance: Sequence[str] = ("full", "tied", "diagonal", "spherical"),
    *,
    num_restarts: int = 8,
    test_data: Data | None = None,
    weights: Any = None,
    max_steps: int = 300,
    **settings: Any,
) -> Table:
    """The usual question in one call: how many components, and which covariance? K x covariance x restarts.

    >>> xs = jnp.concatenate([jr.normal(jr.key(0), (60, 2)), 8 + jr.normal(jr.key(1), (60, 2))])
    >>> table = gaussian_mixture_table(jr.key(2), xs, [1, 2], ["spherical"], num_restarts=2)
    >>> table.best("bic").settings["num_components"]
    2
    """
    build = lambda k, data, **chosen: gaussian_mixture(k, data, weights=weights, **chosen, **settings)
    grid = {"num_components": list(num_components), "covariance": list(covariance)}
    options = {"num_restarts": num_restarts, "test_data": test_data, "weights": weights, "max_steps": max_steps}
    return compare(key, xs, build, grid, **options)


def gaussian_process_table(
    key: PRNGKey,
    x: Array,
    y: Array,
    kernels: Mapping[str, AbstractKernel],
    *,
    noise: float = 0.1,
    num_restarts: int = 4,
    max_steps: int = 100,
) -> Table:
    """Kernels side by side: each fitted from several starts, with its evidence and its leave-one-out prediction.

    The first start is the kernel as given, the others are `perturbed`. `evidence` is the log marginal likelihood at the
    best parameters, `held_out` the mean log density of each observation given all others.

    >>> from probml_jax.gaussian_processes import kernels
    >>> x = jnp.linspace(0.0, 3.0, 30)
    >>> choices = {"smooth": kernels.RBF(1.0), "straight": kernels.Linear()}
    >>> table = gaussian_process_table(jr.key(0), x, jnp.sin(3 * x), choices, num_restarts=2)
    >>> table.best("evidence").settings["kernel"]
    'smooth'
    """
    rows = []
    scales = jnp.where(jnp.arange(num_restarts) == 0, 0.0, 1.0)
    for i, (name, kernel) in enumerate(kernels.items()):
        start = GaussianProcess(kernel, noise)
        run = lambda k, scale, start=start: fit(perturbed(k, start, scale), (x, y), LBFGS(), max_steps=max_steps)
        # one after the other: a single fit fills the machine
        several = eqx.filter_jit(lambda keys, scales, run=run: jax.lax.map(lambda given: run(*given), (keys, scales)))
        fits = several(jr.split(jr.fold_in(key, i), num_restarts), scales)
        best = best_of(fits)
        value, nothing = float(best.final_objective), float("nan")
        close = jnp.mean(fits.final_objective >= best.final_objective - 1e-4 * len(y))
        held = float(jnp.nanmean(best.model.condition(x, y).leave_one_out().log_prob))
        count = num_parameters(best.model)
        criteria = count * float(np.log(len(y))) - 2 * value, 2.0 * count - 2 * value, nothing
        rows.append(Row({"kernel": name}, best, value, count, *criteria, held, value, float(close)))
    return Table(tuple(rows))

"""Potts and Ising models on grids: whole-array inference, and exact answers where the grid is narrow."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .._constraint import fixed, param, real
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check_finite, check_shape, common_dtype, float_dtype, is_concrete
from ..inference import grid as arrays
from ..inference.contraction import Scope
from .field import AbstractField
from .graph import MAX_BYTES, AbstractGraph
from .posterior import Approximation, GibbsSamples, Variable, check_states, iteration_status
from .table_graph import check_sweeps, default_tolerance


class PottsGrid(AbstractGraph, AbstractField):
    r"""$\log\tilde p(x) = \sum_{ij} u_{ij}(x_{ij}) + J\sum_{(a,b)} c(x_a, x_b)$ over a grid; a unit is `(h, w)` labels.

    `field (h, w, k)` is the external field, `coupling` the $J$ of all edges (both train), `compatibility (k, k)` the
    symmetric $c$: $[x_a = x_b]$ for Potts, $s_a s_b$ for Ising; build with `potts_grid` or `ising_grid`. Exact queries
    cost $O(h w k^{\min(h, w)+1})$; approximate ones $O(h w k^2)$ a sweep. Reference: Murphy (2012), section 19.4.

    >>> grid = potts_grid(3, 3, num_labels=2, coupling=0.5)
    >>> round(float(grid.log_partition()), 4), grid.cost().treewidth
    (9.6247, 3)
    """

    field: Float[Array, "h w k"] = param(real)
    coupling: Float[Array, ""] = param(real)
    compatibility: Float[Array, "k k"] = fixed()

    def __check_init__(self):
        if self.field.ndim != 3 or 0 in self.field.shape:
            raise ValueError(f"field has shape {self.field.shape}; wanted (h, w, k) with h, w, k > 0.")
        k = self.field.shape[-1]
        check_shape("coupling", self.coupling, ())
        check_shape("compatibility", self.compatibility, (k, k))
        check_finite("coupling", self.coupling, nan=False)
        check_finite("compatibility", self.compatibility, nan=False)
        if is_concrete(self.field) and (np.isnan(self.field).any() or (np.asarray(self.field) == np.inf).any()):
            raise ValueError("field has NaN or +inf entries; log potentials are finite or -inf.")
        if is_concrete(self.compatibility) and not np.allclose(self.compatibility, self.compatibility.T):
            raise ValueError("compatibility must be symmetric: edges have no direction.")

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.field.shape[:2]

    @property
    def num_labels(self) -> int:
        """k."""
        return self.field.shape[-1]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """One per site, row by row."""
        states = tuple(map(str, range(self.num_labels)))
        return tuple(Variable(f"x{i},{j}", states) for i, j in np.ndindex(self.shape))

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every site, then the edges down, then those to the right."""
        number = np.arange(np.prod(self.shape)).reshape(self.shape)
        pairs = lambda a, b: zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        edges = [*pairs(number[:-1], number[1:]), *pairs(number[:, :-1], number[:, 1:])]
        return (*[(v,) for v in range(number.size)], *edges)

    def log_potentials(self) -> tuple[Float[Array, "..."], ...]:
        h, w = self.shape
        single = tuple(self.field.reshape(h * w, -1))
        return (*single, *[self._grid().table] * (2 * h * w - h - w))

    def _grid(self) -> arrays.Grid:
        return arrays.Grid(self.field, self.coupling * self.compatibility)

    # -------------------------------------------------------------------------------------- approximate inference

    def _report(self, found: arrays.Sites, tolerance: float) -> Approximation:
        status = iteration_status(found.log_partition, found.residual, tolerance)
        best = jnp.argmax(found.single, axis=-1).astype(jnp.int32)
        return Approximation(found.single, found.log_partition, best, found.num_sweeps, found.residual, status)

    def _tolerance(self, tolerance: float | None) -> float:
        return default_tolerance(float_dtype(self)) if tolerance is None else tolerance

    @eqx.filter_jit
    def _propagate(self, rules: arrays.Rules, num_sweeps: int, tolerance: float) -> Approximation:
        report = self._report(arrays.propagate(self._grid(), rules, num_sweeps, tolerance), tolerance)
        if not rules.maximize:
            return report
        score = arrays.log_score(report.assignment, self._grid())
        return eqx.tree_at(lambda r: r.log_partition, report, score)

    def belief_propagation(
        self, *, num_sweeps: int = 100, damping: float = 0.0, tolerance: float | None = None
    ) -> Approximation:
        """Sum-product messages until they rest: approximate marginals `(h, w, k)` and the Bethe log-partition.

        `damping` in [0, 1) keeps that much of the old message. Differentiable (reverse mode, implicitly).
        """
        check_sweeps(num_sweeps, damping)
        return self._propagate(arrays.Rules(damping=damping), num_sweeps, self._tolerance(tolerance))

    def max_product(
        self, *, num_sweeps: int = 100, damping: float = 0.5, tolerance: float | None = None
    ) -> Approximation:
        """Max-product messages: `assignment` is the labeling found and `log_partition` its score."""
        check_sweeps(num_sweeps, damping)
        rules = arrays.Rules(maximize=True, damping=damping)
        return self._propagate(rules, num_sweeps, self._tolerance(tolerance))

    def tree_reweighted(
        self, *, num_sweeps: int = 1000, damping: float = 0.3, tolerance: float | None = None
    ) -> Approximation:
        """Tree-reweighted messages over combs of the grid: an upper bound of the log-partition once converged."""
        check_sweeps(num_sweeps, damping)
        rules = arrays.Rules(arrays.comb_weights(*self.shape), damping=damping)
        return self._propagate(rules, num_sweeps, self._tolerance(tolerance))

    @eqx.filter_jit
    def _mean_field(self, num_sweeps: int, tolerance: float, key: PRNGKey | None) -> Approximation:
        grid = self._grid()
        noise = 0.0 if key is None else jr.normal(key, grid.field.shape, grid.field.dtype)
        logits = grid.field + noise
        start = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        start = start / jnp.sum(start, axis=-1, keepdims=True)
        return self._report(arrays.mean_field(grid, start, num_sweeps, tolerance), tolerance)

    def mean_field(
        self, *, num_sweeps: int = 100, key: PRNGKey | None = None, tolerance: float | None = None
    ) -> Approximation:
        """Naive mean field by checkerboard: a lower bound of the log-partition that every sweep raises.

        A `key` adds noise to the start, which a grid without field needs to choose a side.
        """
        check_sweeps(num_sweeps)
        return self._mean_field(num_sweeps, self._tolerance(tolerance), key)

    @eqx.filter_jit
    def _gibbs(self, key: PRNGKey, num_chains: int, burn_in: int, num_sweeps: int) -> GibbsSamples:
        found = arrays.gibbs(key, self._grid(), num_chains, burn_in, num_sweeps)
        return GibbsSamples(*found)

    def gibbs(self, key: PRNGKey, *, num_sweeps: int, num_chains: int = 4, burn_in: int | None = None) -> GibbsSamples:
        """Gibbs sampling, one color of a checkerboard at a time, in several chains.

        `burn_in` sweeps (by default as many as are kept) are thrown away.
        """
        check_sweeps(num_sweeps // 2)
        return self._gibbs(key, num_chains, num_sweeps if burn_in is None else burn_in, num_sweeps)

    # -------------------------------------------------------------------------------------- learning

    @eqx.filter_jit
    def _log_prob(self, row: Int[Array, "v"]) -> Scalar:
        return self._log_mass(self.log_potentials(), row) - self._log_total(-jnp.ones_like(row), self.plan(MAX_BYTES))

    def log_score(self, states: Int[Array, "h w"]) -> Scalar:
        return arrays.log_score(states, self._grid())

    def conditional_logits(self, states: Int[Array, "h w"]) -> Float[Array, "h w k"]:
        return arrays.conditional_logits(states, self._grid())

    def resample(self, key: PRNGKey, states: Int[Array, "h w"]) -> Int[Array, "h w"]:
        return arrays.gibbs_sweep(key, states, self._grid())

    def log_prior(self) -> Scalar:
        return jnp.zeros((), float_dtype(self))

    def validate(self, data: Any) -> None:
        if data.ndim != 3 or data.shape[1:] != self.shape or not jnp.issubdtype(data.dtype, jnp.integer):
            raise ValueError(
                f"data is {data.dtype} of shape {data.shape}; wanted labels (n, {self.shape}), -1 missing."
            )
        if is_concrete(data):
            check_states(self.variables, np.asarray(data).reshape(len(data), -1))

    def validate_complete(self, data: Any) -> None:
        self.validate(data)
        if is_concrete(data) and (np.asarray(data) < 0).any():
            raise ValueError("data has unobserved entries (-1); complete labelings are wanted here.")

    def degenerate(self) -> Flag:
        """Never: potentials are real numbers."""
        return jnp.array(False)


def _field(height: int, width: int, k: int, field: Any, coupling: Any) -> tuple[Array, Array]:
    if field is None:
        coupling = as_float(coupling, "coupling")
        return jnp.zeros((height, width, k), coupling.dtype), coupling
    field, coupling = common_dtype(field=field, coupling=coupling)
    check_shape("field", field, (height, width, k))
    return field, coupling


def potts_grid(
    height: int, width: int, *, num_labels: int, coupling: float | Array, field: Float[Array, "h w k"] | None = None
) -> PottsGrid:
    """A Potts model on a grid; `field` is the external field (a log-likelihood of labels), none by default."""
    field, coupling = _field(height, width, num_labels, field, coupling)
    return PottsGrid(field, coupling, jnp.eye(num_labels, dtype=field.dtype))


def ising_grid(
    height: int, width: int, *, coupling: float | Array, field: Float[Array, "h w"] | None = None
) -> PottsGrid:
    r"""The Ising model $\sum J s_a s_b + \sum h_a s_a$ on a grid; label 0 is $s = -1$.

    >>> round(float(ising_grid(2, 1, coupling=1.0).log_partition()), 4)
    1.8201
    """
    spins = jnp.array([-1.0, 1.0])
    both = None
    if field is not None:
        one = jnp.asarray(as_float(field, "field"))
        check_shape("field", one, (height, width))
        both = one[:, :, None] * spins.astype(one.dtype).reshape(1, 1, 2)
    both, coupling = _field(height, width, 2, both, coupling)
    return PottsGrid(both, coupling, jnp.outer(spins, spins).astype(both.dtype))

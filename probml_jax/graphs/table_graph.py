"""Graphs given by tables over named variables: approximate inference for any of them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .._typing import PRNGKey
from .._validate import float_dtype
from ..inference import belief_propagation as bp
from ..inference import elimination, gibbs, groups, mean_field
from ..inference.tree_reweighted import occurrence
from .graph import AbstractGraph, Evidence
from .posterior import Approximation, GibbsSamples, Marginals, iteration_status


def default_tolerance(dtype: Any) -> float:
    """Changes of a probability below this count as rest."""
    return 1e-10 if jnp.finfo(dtype).bits >= 64 else 1e-6


def check_sweeps(num_sweeps: int, damping: float = 0.0) -> None:
    """Raise `ValueError` for a number of sweeps below one or a damping outside [0, 1)."""
    if num_sweeps < 1:
        raise ValueError(f"num_sweeps must be at least 1; got {num_sweeps}.")
    if not 0 <= damping < 1:
        raise ValueError(f"damping must be in [0, 1); got {damping}.")


class AbstractTableGraph(AbstractGraph):
    """A graph whose approximate queries run on its tables, sorted by shape; all take evidence by name."""

    def message_potentials(self, row: Int[Array, "v"], weights: np.ndarray | None = None) -> bp.Potentials:
        """Tables and evidence in the form that messages use."""
        return bp.potentials(self.structure, self.log_potentials(), self.evidence_potentials(row), weights)

    def _report(self, found: Any, tolerance: float) -> Approximation:
        narrow = groups.narrow(self.structure, found.single)
        status = iteration_status(found.log_partition, found.residual, tolerance)
        marginals = Marginals(narrow, found.log_partition, status, self.variables)
        best = jnp.argmax(found.single, axis=1).astype(jnp.int32)
        return Approximation(marginals, found.log_partition, best, found.num_sweeps, found.residual, status)

    @eqx.filter_jit
    def _propagate(self, row, num_sweeps, tolerance, settings, weights=None) -> Approximation:
        weights = None if weights is None else np.array(weights)
        given = self.message_potentials(row, weights)
        report = self._report(bp.propagate(given, settings, num_sweeps, tolerance), tolerance)
        if not settings.maximize:
            return report
        unary = self.evidence_potentials(row)
        score = elimination.score(self.structure, self.log_potentials(), unary, report.assignment)
        return eqx.tree_at(lambda r: (r.log_partition, r.marginals.log_evidence), report, (score, score))

    def _settings(self, maximize: bool, damping: float, schedule: str, num_sweeps: int) -> bp.Settings:
        check_sweeps(num_sweeps, damping)
        if schedule not in ("synchronous", "residual"):
            raise ValueError(f"schedule must be 'synchronous' or 'residual'; got {schedule!r}.")
        return bp.Settings(self.structure, maximize, damping, schedule == "residual")

    def _tolerance(self, tolerance: float | None) -> float:
        return default_tolerance(float_dtype(self)) if tolerance is None else tolerance

    def belief_propagation(
        self,
        evidence: Evidence | None = None,
        *,
        num_sweeps: int = 100,
        damping: float = 0.0,
        schedule: str = "synchronous",
        tolerance: float | None = None,
    ) -> Approximation:
        """Sum-product messages until they rest: exact marginals and log-partition on trees, the Bethe
        approximation elsewhere.

        `damping` in [0, 1) keeps that much of the old message. `schedule="residual"` moves only messages that want to
        move at least half as far as the one that wants to move furthest. Differentiable (reverse mode, implicitly).
        Cost: every entry of every table, once per axis and sweep. Reference: Yedidia, Freeman and Weiss (2005).
        """
        settings = self._settings(False, damping, schedule, num_sweeps)
        return self._propagate(self.evidence_row(evidence), num_sweeps, self._tolerance(tolerance), settings)

    def max_product(
        self,
        evidence: Evidence | None = None,
        *,
        num_sweeps: int = 100,
        damping: float = 0.5,
        schedule: str = "synchronous",
        tolerance: float | None = None,
    ) -> Approximation:
        """Max-product messages: `assignment` takes each variable's best state, and `log_partition` is its score,
        which never exceeds the best. Exact on trees whose best assignment is unique."""
        settings = self._settings(True, damping, schedule, num_sweeps)
        return self._propagate(self.evidence_row(evidence), num_sweeps, self._tolerance(tolerance), settings)

    def tree_reweighted(
        self,
        evidence: Evidence | None = None,
        *,
        num_sweeps: int = 1000,
        damping: float = 0.5,
        tolerance: float | None = None,
    ) -> Approximation:
        """Tree-reweighted messages: where they have converged, `log_partition` is an upper bound of the true one.

        Reference: Wainwright, Jaakkola and Willsky (2005).
        """
        settings = self._settings(False, damping, "synchronous", num_sweeps)
        weights = occurrence(self.structure)
        return self._propagate(self.evidence_row(evidence), num_sweeps, self._tolerance(tolerance), settings, weights)

    @eqx.filter_jit
    def _mean_field(self, row, num_sweeps, tolerance, key) -> Approximation:
        given = self.message_potentials(row)
        noise = 0.0 if key is None else jr.normal(key, given.unary.shape, given.unary.dtype)
        logits = given.unary + noise
        start = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
        start = start / jnp.sum(start, axis=1, keepdims=True)
        found = mean_field.mean_field(given, start, self.structure, num_sweeps, tolerance)
        return self._report(found, tolerance)

    def mean_field(
        self,
        evidence: Evidence | None = None,
        *,
        num_sweeps: int = 100,
        key: PRNGKey | None = None,
        tolerance: float | None = None,
    ) -> Approximation:
        """The best product of independent variables: `log_partition` is a lower bound that every sweep raises.

        Starts at the unary potentials; a `key` adds noise, which a symmetric graph without field needs to choose a
        side. Where tables forbid combinations the bound is often `-inf`. Reference: Wainwright and Jordan (2008).
        """
        check_sweeps(num_sweeps)
        return self._mean_field(self.evidence_row(evidence), num_sweeps, self._tolerance(tolerance), key)

    @eqx.filter_jit
    def _gibbs(self, key, row, num_chains, burn_in, num_sweeps) -> GibbsSamples:
        given = self.message_potentials(row)
        found = gibbs.gibbs(key, given, self.structure, num_chains, burn_in, num_sweeps)
        zero = jnp.zeros((), jnp.int32)
        nothing = jnp.full((), jnp.nan, found.single.dtype)
        marginals = Marginals(groups.narrow(self.structure, found.single), nothing, zero, self.variables)
        ess = found.effective_sample_size
        return GibbsSamples(marginals, found.states, found.log_scores, found.rhat, ess)

    def gibbs(
        self,
        key: PRNGKey,
        *,
        num_sweeps: int,
        evidence: Evidence | None = None,
        num_chains: int = 4,
        burn_in: int | None = None,
    ) -> GibbsSamples:
        """Gibbs sampling, a color of independent variables at a time, in several chains.

        `burn_in` sweeps (by default as many as are kept) are thrown away. Where tables forbid combinations chains may
        not reach every state: look at `rhat`, or use `posterior_sample`.
        """
        check_sweeps(num_sweeps // 2)
        burn_in = num_sweeps if burn_in is None else burn_in
        return self._gibbs(key, self.evidence_row(evidence), num_chains, burn_in, num_sweeps)

    def conditional_logits(self, states: Int[Array, "v"]) -> Float[Array, "v k"]:
        """Log potential of each state of each variable given all others, padded with `-inf`."""
        given = self.message_potentials(jnp.full(len(self.variables), -1))
        return gibbs.conditional_logits(given, states, self.structure)

    def resample(self, key: PRNGKey, states: Int[Array, "v"]) -> Int[Array, "v"]:
        """One Gibbs sweep from given states."""
        given = self.message_potentials(jnp.full(len(self.variables), -1))
        return gibbs.color_sweep(key, states, given, self.structure)

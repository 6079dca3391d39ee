"""Regression in one dimension by filtering and smoothing the state-space form of the kernel."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import symmetric
from .._special import any_in_batch
from .._typing import Flag, Scalar
from ..inference import kalman
from ..inference.small import apply, congruence, identity, over_time, solve, times, turned
from .composition import AbstractKernel
from .evidence import AbstractEvidence, LeaveOneOut, without_own
from .state_space import Markov, markov


def _form(kernel: AbstractKernel) -> Markov:
    form = markov(kernel)
    if form is None:
        raise ValueError(f"{type(kernel).__name__} has no state-space form.")
    return form


def _system(form: Markov, sorted_inputs: Float[Array, "n"], noise: Float[Array, "n"]) -> kalman.System:
    """The kernel's process at ordered inputs."""
    p = form.emission.shape[0]
    matrix, spread = form.move(jnp.diff(sorted_inputs))
    first = lambda a: jnp.moveaxis(a, -1, 0)
    return kalman.System(
        jnp.zeros(p, noise.dtype),
        form.stationary,
        first(matrix),
        first(spread),
        form.emission[None, :],
        (noise + form.nugget)[:, None, None],
    )


def log_density(kernel: AbstractKernel, xs: Array, residual: Array, noise: Array, parallel: bool) -> Scalar:
    """The log density of observations at inputs in any order; NaN is missing. $O(n)$ after sorting."""
    given = (xs[:, 0], residual, noise)
    by_input = lambda arrays: jax.tree_util.tree_map(lambda a: a[jnp.argsort(arrays[0])], arrays)
    at, residual, noise = jax.lax.cond(_unordered(xs), by_input, lambda arrays: arrays, given)
    return kalman.log_likelihood(_system(_form(kernel), at, noise), residual[:, None], parallel=parallel)


def _unordered(xs: Array) -> Flag:
    """Whether inputs have to be sorted, which costs more than all the rest."""
    return any_in_batch(jnp.any(jnp.diff(jax.lax.stop_gradient(xs[:, 0])) < 0))


class Recursive(AbstractEvidence):
    """Filtered and smoothed states at the (ordered) inputs: new inputs need their two neighbours only."""

    xs: Array
    residual: Float[Array, "n"]
    noise: Float[Array, "n"]
    order: Array
    filtered: tuple[Float[Array, "n p"], Float[Array, "n p p"]]
    smoothed: tuple[Float[Array, "n p"], Float[Array, "n p p"]]
    jitter: Float[Array, ""]
    parallel: bool = eqx.field(static=True)

    def _states(self, kernel: AbstractKernel, xs: Array) -> tuple[Array, Array]:
        """Moments of the state at new inputs: a step from the filtered left, and one back from the smoothed right."""
        form = _form(kernel)
        times_seen, at = self.xs[self.order, 0], xs[:, 0]
        n, p = times_seen.shape[0], form.emission.shape[0]
        right = jnp.searchsorted(times_seen, at, side="right")
        left = right - 1
        inside = jnp.clip(left, 0, n - 1)
        # before the first input nothing is known yet: the process at rest
        begun = left >= 0
        mean = jnp.where(begun[:, None], self.filtered[0][inside], 0)
        spread = jnp.where(begun[:, None, None], self.filtered[1][inside], form.stationary[None])
        gap = jnp.where(begun, at - times_seen[inside], 0)
        after = jnp.clip(right, 0, n - 1)
        ahead = jnp.where(right < n, times_seen[after] - at, 0)
        steps = [jnp.moveaxis(a, -1, 0) for dt in (gap, ahead) for a in form.move(dt)]
        last = right < n

        def answer(_, a, q, b, r, mean, spread, later_mean, later_spread, known):
            mean, spread = apply(a, mean), congruence(a, spread) + q
            half = times(b, spread)
            predicted = times(half, turned(b)) + r
            gain = turned(solve(predicted, half))
            better = mean + apply(gain, later_mean - apply(b, mean))
            keep = identity(p, spread) - times(gain, b)
            tighter = congruence(keep, spread) + congruence(gain, r + later_spread)
            return jnp.where(known[None], better, mean), jnp.where(known[None, None], tighter, spread)

        later = self.smoothed[0][after], self.smoothed[1][after]
        return over_time(answer, p, None, *steps, mean, spread, *later, last)

    def _given(self, kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> "Recursive":
        return conditioned(kernel, xs, residual, noise, self.parallel)

    def mean(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        return jnp.matmul(self._states(kernel, xs)[0], _form(kernel).emission, precision="highest")

    def variance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        form = _form(kernel)
        spread = self._states(kernel, xs)[1]
        seen = jnp.einsum("p,mpq,q->m", form.emission, spread, form.emission, precision="highest")
        return jnp.maximum(seen, 0) + form.nugget

    def covariance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m m"]:
        r"""$k(x, x_j)$ less its own prediction from its values at the observations: m smoothers of means."""
        seen = ~jnp.isnan(self.residual)
        cross = jnp.where(seen[:, None], kernel.cross(self.xs, xs), jnp.nan)
        explained = jax.vmap(
            lambda column: self._given(kernel, self.xs, column, self.noise).mean(kernel, xs), in_axes=1, out_axes=1
        )(cross)
        return symmetric(kernel.gram(xs) - explained)

    def leave_one_out(self, kernel: AbstractKernel) -> LeaveOneOut:
        """What the smoother says of an input, less what the observation itself said of it."""
        form = _form(kernel)
        back = jnp.argsort(self.order)
        mean = jnp.matmul(self.smoothed[0], form.emission, precision="highest")[back]
        spread = jnp.einsum("p,npq,q->n", form.emission, self.smoothed[1], form.emission, precision="highest")[back]
        return without_own(self.residual, mean, spread, self.noise + form.nugget)

    def extended(self, kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> "Recursive":
        """All observations again: $O(n)$."""
        join = lambda a, b: jnp.concatenate([a, b])
        return self._given(kernel, join(self.xs, xs), join(self.residual, residual), join(self.noise, noise))


@eqx.filter_jit
def conditioned(kernel: AbstractKernel, xs: Array, residual: Array, noise: Array, parallel: bool) -> Recursive:
    """Observations as smoothed states."""
    form = _form(kernel)
    as_given = lambda at: jnp.arange(at.size, dtype=jnp.argsort(at[:1]).dtype)
    order = jax.lax.cond(_unordered(xs), jnp.argsort, as_given, xs[:, 0])
    system = _system(form, xs[order, 0], noise[order])
    y = residual[order, None]
    filtered, smoothed = (run(system, y, parallel=parallel) for run in (kalman.filter, kalman.smooth))
    nothing = jnp.zeros((), residual.dtype)
    return Recursive(xs, residual, noise, order, filtered[:2], smoothed[:2], nothing, parallel)

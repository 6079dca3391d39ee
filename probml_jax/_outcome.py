"""What `fit` returns: how it ended, the model, and the trace of its objective."""

import enum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Status(enum.IntEnum):
    """How a fit ended."""

    converged = 0
    max_steps = 1
    objective_fell = 2
    nonfinite = 3
    degenerate = 4
    interrupted = 5


_MEANING = {
    Status.converged: "the objective stopped improving",
    Status.max_steps: "max_steps was reached before convergence",
    Status.objective_fell: "a step lowered the objective by more than rounding; the model before it was kept",
    Status.nonfinite: "the objective became NaN or infinite; the last good model was kept",
    Status.degenerate: (
        "the model collapsed: a spread sits on its floor, a component has no data, or classes are separable and "
        "nothing holds the weights"
    ),
    Status.interrupted: "it was interrupted; the last good model was kept",
}


class Fit(eqx.Module):
    """What `fit` returns: a model of the same type, the trace of its objective, and how it ended.

    `objective[s]` is the objective after s steps, up to `objective[num_steps]` (the returned model's);
    it is NaN after that. `status` is a `Status` code, one per fit under `vmap`.
    """

    model: Any
    objective: Float[Array, "*batch steps"]
    num_steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]

    @property
    def final_objective(self) -> Array:
        """Objective of the returned model, one per fit when this is a batch of fits."""
        return jnp.take_along_axis(self.objective, self.num_steps[..., None], axis=-1)[..., 0]

    @property
    def converged(self) -> Array:
        """Whether it ended because the objective stopped improving, one per fit of a batch."""
        return self.status == Status.converged

    def raise_if_failed(self) -> "Fit":
        """Raise `RuntimeError` on the host if any fit ended in failure; else return self.

        `converged` and `max_steps` are not failures.
        """
        codes = np.unique(np.asarray(self.status))
        failed = [Status(int(code)) for code in codes if code not in (Status.converged, Status.max_steps)]
        if failed:
            raise RuntimeError("fit failed: " + "; ".join(f"{s.name}: {_MEANING[s]}" for s in failed))
        return self

    def summary(self) -> str:
        """One readable line per fit."""
        statuses, steps = np.ravel(np.asarray(self.status)), np.ravel(np.asarray(self.num_steps))
        values = np.ravel(np.asarray(self.final_objective))
        rows = zip(statuses, steps, values, strict=True)
        return "\n".join(f"{Status(int(s)).name} after {n} steps, objective {v:.6g}" for s, n, v in rows)


def best_of(fits: Fit) -> Fit:
    """The fit with the highest final objective among a batch made by `jax.vmap`; failed fits never win.

    A degenerate fit wins only if every fit is degenerate or failed.
    """
    return fits if fits.status.ndim == 0 else _best_of(fits)


@eqx.filter_jit
def _best_of(fits: Fit) -> Fit:
    failed = (fits.status == Status.nonfinite) | ~jnp.isfinite(fits.final_objective)
    rank = jnp.where(failed, 2, jnp.where(fits.status == Status.degenerate, 1, 0))
    value = jnp.where(rank == jnp.min(rank), jnp.where(failed, 0.0, fits.final_objective), -jnp.inf)
    winner = jnp.argmax(value)
    return jax.tree_util.tree_map(lambda a: a[winner] if eqx.is_array(a) else a, fits)

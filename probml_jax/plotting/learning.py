"""How learning went: traces, restarts, choices."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp  # noqa: F401  (the examples)
import jax.random as jr  # noqa: F401
import numpy as np

from .._fit import Fit, Status
from ..selection import Table
from .canvas import INK, PALETTE, axes, names_of

_TONES = dict(zip(Status, (PALETTE[0], PALETTE[5], PALETTE[1], PALETTE[4], PALETTE[3]), strict=False))


def trace(result: Fit, ax: Any = None, **style: Any) -> Any:
    """The objective after each step, with how the fit ended in the title; one thin line per fit of a batch, the best
    one thick.

    >>> done = Fit(None, jnp.array([-9.0, -5.0, -4.0, jnp.nan]), jnp.array(2), jnp.array(Status.converged))
    >>> trace(done).get_title()
    'converged'
    """
    ax = axes(ax)
    objective = np.asarray(result.objective)
    objective = objective.reshape(-1, objective.shape[-1])
    steps = np.ravel(np.asarray(result.num_steps))
    final = np.where(np.isfinite(ends := objective[np.arange(len(steps)), steps]), ends, -np.inf)
    best = int(final.argmax())
    for i, (row, count) in enumerate(zip(objective, steps, strict=True)):
        if i != best:
            ax.plot(np.arange(count + 1), row[: count + 1], color="0.7", lw=0.8, zorder=1)
    ax.plot(np.arange(steps[best] + 1), objective[best, : steps[best] + 1], **({"lw": 1.8} | style))
    statuses = {Status(int(s)).name for s in np.ravel(np.asarray(result.status))}
    statuses |= {status.name for status in Status if status.name in ax.get_title().split(", ")}  # of earlier traces
    ax.set(xlabel="step", ylabel="objective", title=", ".join(sorted(statuses)))
    return ax


def restarts(fits: Fit | dict[Any, Fit], ax: Any = None, *, names: Sequence[Any] | None = None, seed: int = 0) -> Any:
    """The final objective of every start in a batch of fits `(g, r)`, or `(r,)`: a column per group, colors by status.

    `fits` may be a dictionary of batches `(r,)` of different models. A bar marks the best of a group that did not
    fail. `names` are those of the groups; points are spread sideways at
    random (`seed`) so that equal ones can be counted.

    >>> traces = jnp.array([[-9.0, -5.0, -4.0], [-8.0, -6.0, -3.0]])
    >>> restarts(Fit(None, traces, jnp.full(2, 2), jnp.full(2, Status.max_steps))).get_ylabel()
    'objective of each start'
    """
    ax = axes(ax)
    if isinstance(fits, dict):
        names = [str(name) for name in fits] if names is None else names
        final, status = (np.array([getattr(f, part) for f in fits.values()]) for part in ("final_objective", "status"))
    else:
        final, status = np.asarray(fits.final_objective), np.asarray(fits.status)
    if final.ndim not in (1, 2):
        raise ValueError(f"fits is a batch of shape {final.shape}; wanted (r,) or (g, r).")
    final, status = np.atleast_2d(final), np.atleast_2d(status)
    places = np.broadcast_to(np.arange(len(final))[:, None], final.shape)
    places = places + np.random.default_rng(seed).uniform(-0.25, 0.25, final.shape)
    for code in Status:
        here = (status == code) & np.isfinite(final)
        if here.any():
            label = f"{code.name} ({int((status == code).sum())})"
            ax.plot(places[here], final[here], "o", ms=4, alpha=0.6, mew=0, color=_TONES[code], label=label)
    sound = np.isfinite(final) & ((status == Status.converged) | (status == Status.max_steps))
    for place, row, good in zip(range(len(final)), final, sound, strict=True):
        if good.any():
            ax.hlines(row[good].max(), place - 0.35, place + 0.35, color=INK, lw=1.5)
    ax.set_xticks(range(len(final)), names_of(names, len(final), "groups of fits") if names is not None else None)
    ax.set_ylabel("objective of each start")
    ax.legend()
    return ax


def selection(table: Table, criterion: str = "bic", ax: Any = None) -> Any:
    """A criterion against the number of components, one line per covariance, the winner circled.

    A table over something else, kernels say, has one line over its first setting.

    >>> from probml_jax.selection import gaussian_mixture_table
    >>> xs = jnp.concatenate([jr.normal(jr.key(0), (60, 2)), 8 + jr.normal(jr.key(1), (60, 2))])
    >>> table = gaussian_mixture_table(jr.key(2), xs, [1, 2], ["spherical"], num_restarts=2)
    >>> selection(table).get_ylabel()
    'bic (less is better)'
    """
    ax, columns = axes(ax), table.to_dict()
    if criterion not in columns:
        raise ValueError(f"criterion must be a column of the table: {', '.join(columns)}; got {criterion!r}.")
    best = table.best(criterion)
    horizontal = "num_components" if "num_components" in columns else next(iter(columns))
    groups = columns.get("covariance", [""] * len(table.rows))
    for name in dict.fromkeys(groups):
        chosen = [i for i, g in enumerate(groups) if g == name]
        ks = [columns[horizontal][i] for i in chosen]
        ax.plot(ks, [columns[criterion][i] for i in chosen], "o-", lw=1.8, label=name or None)
    ax.plot(best.settings[horizontal], getattr(best, criterion), "o", color=INK, ms=13, mew=1.5, fillstyle="none")
    if horizontal == "num_components":
        ax.set_xticks(sorted(set(columns[horizontal])))
    better = "less" if criterion in ("bic", "aic", "icl") else "more"
    ax.set(xlabel=horizontal.replace("num_", ""), ylabel=f"{criterion} ({better} is better)")
    if any(groups):
        ax.legend()
    return ax

"""Functions and series with their uncertainty: bands, fans, processes, hidden states over time."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import PRNGKey
from ..gaussian_processes import GaussianProcess
from ..sequences import HMM
from ..sequences.tagger import AbstractTagger
from .canvas import INK, array, axes, colors, names_of


def band(x: Any, mean: Any, scale: Any, ax: Any = None, *, num_sigma: float = 2.0, **style: Any) -> Any:
    """A mean `(m,)` and `num_sigma` standard deviations `scale (m,)` around it.

    >>> len(band(jnp.arange(3), jnp.zeros(3), jnp.ones(3)).collections) > 0
    True
    """
    ax = axes(ax)
    x, mean, scale = (array(name, a, 1, "(m,)") for name, a in (("x", x), ("mean", mean), ("scale", scale)))
    if not len(x) == len(mean) == len(scale):
        raise ValueError(f"x, mean and scale have {len(x)}, {len(mean)} and {len(scale)} entries; wanted as many.")
    (line,) = ax.plot(x, mean, **style)
    width = num_sigma * scale
    ax.fill_between(x, mean - width, mean + width, color=line.get_color(), alpha=0.22, lw=0)
    return ax


def process(
    gp: GaussianProcess,
    x: Any,
    ax: Any = None,
    *,
    num_sigma: float = 2.0,
    num_samples: int = 0,
    key: PRNGKey | None = None,
    observations: bool = True,
    noisy: bool = False,
    **style: Any,
) -> Any:
    """Mean and band of a Gaussian process over one-dimensional inputs `x (m,)`, with the observations it has seen.

    The band is that of the function, or, if `noisy`, of new observations of it. `num_samples` functions are drawn
    with `key` as thin lines.

    >>> from probml_jax.gaussian_processes import GaussianProcess, kernels
    >>> gp = GaussianProcess(kernels.RBF(0.3), noise=0.1).condition(jnp.array([0.2, 0.7]), jnp.array([1.0, -1.0]))
    >>> ax = process(gp, jnp.linspace(0, 1, 20), num_samples=2, key=jax.random.key(0))
    """
    ax = axes(ax)
    if num_samples and key is None:
        raise ValueError("num_samples draws functions at random: a key is wanted, key=jr.key(0).")
    x = jnp.asarray(array("x", x, 1, "(m,): inputs in one dimension"), gp.noise.dtype)
    variance = np.asarray(gp.variance(x)) + (float(gp.noise) if noisy else 0.0)
    band(x, gp.mean(x), np.sqrt(np.maximum(variance, 0)), ax, num_sigma=num_sigma, **({"lw": 1.8} | style))
    tone = ax.lines[-1].get_color()
    if num_samples:
        draws = jax.vmap(lambda one: gp.sample(one, x))(jax.random.split(key, num_samples))
        ax.plot(x, np.asarray(draws).T, color=tone, lw=0.7, alpha=0.6)
    if observations and gp.evidence is not None:
        values = np.asarray(gp.evidence.residual) + np.asarray(jax.vmap(gp.mean_function)(gp.evidence.xs))
        ax.plot(np.ravel(gp.evidence.xs), values, ".", color=INK, ms=5, zorder=3)
    return ax


def forecast(
    times: Any,
    prediction: Any,
    ax: Any = None,
    *,
    probabilities: float | Sequence[float] = (0.5, 0.8, 0.95),
    feature: int = 0,
    **style: Any,
) -> Any:
    """The mean of a `Forecast` of one feature and a fan of its intervals, the more probable the darker.

    `times (steps,)`; `prediction` comes from `forecast` or `observe` of a linear dynamical system.

    >>> import jax, probml_jax as pml
    >>> level = pml.sequences.local_level()
    >>> ahead = level.forecast(level.sample(jax.random.key(0), 5)[1], 4)
    >>> len(forecast(range(4), ahead, probabilities=0.95).collections) > 0
    True
    """
    ax, times = axes(ax), np.asarray(times)
    mean = array("prediction.mean", prediction.mean, 2, "(steps, d)")
    if len(times) != len(mean) or not -mean.shape[1] <= feature < mean.shape[1]:
        raise ValueError(
            f"times has {len(times)} entries, feature is {feature}; prediction has {mean.shape[0]} steps of "
            f"{mean.shape[1]} features."
        )
    chosen = np.sort(np.atleast_1d(np.asarray(probabilities, float)))[::-1]
    (line,) = ax.plot(times, mean[:, feature], **({"lw": 1.8} | style))
    for p in chosen:
        low, high = (np.asarray(end)[:, feature] for end in prediction.interval(float(p)))
        # fans lie on each other: as much ink in all, however many there are
        ax.fill_between(times, low, high, color=line.get_color(), alpha=0.4 / (1 + len(chosen)) + 0.05, lw=0)
    return ax


def posterior_states(
    model: HMM | AbstractTagger,
    x: Any,
    ax: Any = None,
    *,
    times: Any = None,
    series: Any = None,
    names: Sequence[str] | None = None,
) -> Any:
    """A series `x (t, ...)` over ribbons of the posterior of its hidden states, with the best path as a strip below.

    At each time the background is divided among the states in proportion to $p(z_s \\mid x)$. `series (t,)` is what is
    drawn on it: the first feature of `x` by default, nothing if `x` has no numbers to draw. `names` make a legend.

    >>> import probml_jax as pml
    >>> x = jnp.array([0.1, -0.2, 0.0, 3.1, 2.9, 3.0])[:, None]
    >>> hmm = pml.sequences.gaussian_hmm(jax.random.key(0), x[None], 2)
    >>> len(posterior_states(hmm, x, names=["low", "high"]).collections) > 2
    True
    """
    ax = axes(ax)
    probs = np.asarray(model.smooth(x) if isinstance(model, HMM) else model.marginals(x))
    path, (t, k) = np.asarray(model.decode(x)), probs.shape
    times = np.arange(t) if times is None else array("times", times, 1, f"({t},)")
    if len(times) != t:
        raise ValueError(f"times has {len(times)} entries; x has {t} steps.")
    if series is None and isinstance(x, (np.ndarray, jax.Array)):
        series = np.asarray(x).reshape(t, -1)[:, 0]
    palette, edges = colors(k), np.cumsum(probs, axis=1)
    labels = names_of(names, k, "states") if names is not None else [None] * k
    upward = ax.get_xaxis_transform()  # time across, shares of the picture's height upward
    strip, rest = 0.05, 0.95
    middle = (times[1:] + times[:-1]) / 2
    sides = np.concatenate([times[:1], middle, times[-1:]])  # a step reaches half-way to its neighbors
    for j, (color, label) in enumerate(zip(palette, labels, strict=True)):
        below = edges[:, j - 1] if j else np.zeros(t)
        ribbon = {"transform": upward, "color": color, "lw": 0}
        ax.fill_between(times, strip + rest * below, strip + rest * edges[:, j], alpha=0.35, label=label, **ribbon)
        bars = [(sides[i], sides[i + 1] - sides[i]) for i in np.flatnonzero(path == j)]
        ax.broken_barh(bars, (0.0, strip - 0.01), **ribbon)
    if series is not None:
        series = array("series", series, 1, f"({t},)")
        if len(series) != t:
            raise ValueError(f"series has {len(series)} entries; x has {t} steps.")
        whole = np.issubdtype(series.dtype, np.integer)
        ax.plot(
            times, np.where(series < 0, np.nan, series) if whole else series, "." if whole else "-", color=INK, lw=1
        )
    ax.set_xlim(times[0], times[-1])
    if names is not None:
        ax.legend(loc="upper left", framealpha=0.9)
    return ax

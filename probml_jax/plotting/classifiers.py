"""What a classifier would decide, everywhere in the plane."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..decision import bayes_action
from ..gaussian_processes import GaussianProcessClassifier
from ..inference.blocks import in_blocks
from .canvas import FAINT, array, axes, colors, names_of


def decision_regions(
    model: Any,
    xs: Any,
    ys: Any,
    ax: Any = None,
    *,
    num: int = 150,
    margin: float = 0.3,
    cost: Any = None,
    levels: Sequence[float] = (),
    names: Sequence[str] | None = None,
) -> Any:
    """The plane colored by the class probabilities of a classifier, with boundaries and labelled points `xs (n, 2)`.

    `model` has `probs(x)` of one event, or is a Gaussian-process classifier; `num` points each way. With `cost (a, c)`,
    C[action, truth], colors are those of the best action. `levels` are contours of the last class's probability.
    Points with a label of -1 are gray; `names` of the classes make a legend.

    >>> from probml_jax.classifiers import lda
    >>> xs, ys = jax.random.normal(jax.random.key(0), (20, 2)), jnp.arange(20) % 2
    >>> ax = decision_regions(lda(xs, ys), xs, ys, num=10)
    """
    ax, xs, ys = axes(ax), array("xs", xs, 2, "(n, 2)"), array("ys", ys, 1, "(n,)")
    if xs.shape[1] != 2 or len(ys) != len(xs):
        raise ValueError(f"xs and ys have shapes {xs.shape} and {ys.shape}; wanted (n, 2) and (n,).")
    low, high = np.nanmin(xs, axis=0), np.nanmax(xs, axis=0)
    low, high = low - margin * (high - low), high + margin * (high - low)
    across, up = (np.linspace(low[j], high[j], num) for j in range(2))
    grid = jnp.asarray(np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2).astype(xs.dtype))
    probs = np.asarray(
        model.probs(grid) if isinstance(model, GaussianProcessClassifier) else in_blocks(model.probs, grid)
    )
    chosen = probs if cost is None else np.asarray(jax.nn.one_hot(bayes_action(probs, cost), len(np.asarray(cost))))
    palette = colors(max(probs.shape[1], chosen.shape[1]))
    picture = np.clip(0.5 + 0.5 * chosen @ palette[: chosen.shape[1]], 0, 1).reshape(num, num, 3)
    ax.imshow(picture, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto", zorder=0)
    for k in range(chosen.shape[1] if cost is None else 0):
        gap = (probs[:, k] - np.delete(probs, k, axis=1).max(axis=1)).reshape(num, num)
        if gap.min() < 0 < gap.max():
            ax.contour(across, up, gap, levels=[0], colors="k", linewidths=0.8)
    if len(levels):
        ax.contour(across, up, probs[:, -1].reshape(num, num), levels=levels, colors="w", linewidths=0.9)
    names = names_of(names, probs.shape[1], "classes") if names is not None else [""] * probs.shape[1]
    ax.scatter(*xs[ys < 0].T, s=5, color=FAINT, alpha=0.6)
    for k, name in enumerate(names):
        ax.scatter(*xs[ys == k].T, color=palette[k], s=16, edgecolors="k", linewidths=0.4, label=name or None)
    if any(names):
        ax.legend()
    return ax

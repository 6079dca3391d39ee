"""Matrices and images: transitions, marginals, loadings, counts, labels of a grid."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp  # noqa: F401  (the examples)
import numpy as np

from ..factors import PCA
from ..sequences import HMM, MarkovChain
from .canvas import INK, PALETTE, annotate_cells, array, axes, colors, heat_map, names_of


def transition_matrix(model: Any) -> np.ndarray:
    """The transition probabilities of a chain, an HMM, or a matrix `(k, k)`."""
    table = np.exp(model.log_transition()) if isinstance(model, (HMM, MarkovChain)) else model
    table = array("model", table, 2, "a MarkovChain, an HMM or a matrix (k, k)")
    if table.shape[0] != table.shape[1]:
        raise ValueError(f"model has shape {table.shape}; wanted a square matrix (k, k).")
    return table


def transitions(model: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Transition probabilities as a heat map, from rows to columns, with numbers if there are few states.

    `model` is a `MarkovChain`, an `HMM` or a matrix `(k, k)`.

    >>> transitions(jnp.array([[0.9, 0.1], [0.4, 0.6]]), names=["calm", "storm"]).get_xlabel()
    'to'
    """
    ax, table = axes(ax), transition_matrix(model)
    names = names_of(names, len(table), "states")
    heat_map(ax, table)
    if len(table) <= 12:
        annotate_cells(ax, table, ".2f", dark=0.6)
    ax.set_xticks(range(len(table)), names)
    ax.set_yticks(range(len(table)), names)
    ax.set(xlabel="to", ylabel="from")
    return ax


def marginals(
    probs: Any,
    ax: Any = None,
    *,
    path: Any = None,
    names: Sequence[str] | None = None,
    steps: Sequence[str] | None = None,
) -> Any:
    """Probabilities `(t, k)` of states over steps as a heat map, states upward, with a path `(t,)` on it if given.

    For taggers: `marginals(crf.marginals(x), path=crf.decode(x), steps=words)`. Entries of -1 in `path` are left out.

    >>> ax = marginals(jnp.array([[0.9, 0.1], [0.2, 0.8]]), path=[0, 1], names=["out", "in"], steps=["a", "dog"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['out', 'in']
    """
    ax, probs = axes(ax), array("probs", probs, 2, "(t, k)")
    t, k = probs.shape
    heat_map(ax, probs.T)
    if path is not None:
        path = array("path", path, 1, f"({t},)").astype(float)
        if len(path) != t:
            raise ValueError(f"path has {len(path)} steps for {t} rows of probs.")
        ax.plot(np.where(path < 0, np.nan, path), "o-", color=PALETTE[4], ms=4, lw=1)
    ax.set_yticks(range(k), names_of(names, k, "states"))
    if steps is not None:
        ax.set_xticks(range(t), names_of(steps, t, "steps"))
    return ax


def loadings(model: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Loadings `(d, p)` of a factor analysis, or components of a PCA, features down and factors across.

    >>> from probml_jax.factors import PCA
    >>> loadings(PCA.from_data(jnp.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.1]]), 1), names=["a", "b"]).get_xlabel()
    'component'
    """
    ax = axes(ax)
    table = np.asarray(model.components).T if isinstance(model, PCA) else np.asarray(model.loadings)
    d, p = table.shape
    largest = float(np.abs(table).max())
    image = heat_map(ax, table, cmap="RdBu_r", low=-1.3 * largest, high=1.3 * largest)
    if p <= 6 and d <= 20:
        annotate_cells(ax, table, ".2f", dark=0.7 * largest)
    else:
        ax.figure.colorbar(image, ax=ax)
    ax.set_yticks(range(d), names_of(names, d, "features"))
    ax.set_xticks(range(p), [str(j + 1) for j in range(p)])
    ax.set_xlabel("component" if isinstance(model, PCA) else "factor")
    return ax


def scree(model: Any, ax: Any = None) -> Any:
    """The share of variance of each component as bars, and their running sum.

    `model` is a `PCA`, or shares `(k,)` themselves.

    >>> scree(jnp.array([0.7, 0.2, 0.1])).get_xlabel()
    'component'
    """
    ax = axes(ax)
    shares = array("model", model.explained_variance_ratio if isinstance(model, PCA) else model, 1, "a PCA or (k,)")
    places = np.arange(1, len(shares) + 1)
    ax.bar(places, shares, color=PALETTE[0], alpha=0.8, label="each")
    ax.plot(places, np.cumsum(shares), "o-", color=PALETTE[1], ms=4, label="together")
    ax.set(xlabel="component", ylabel="share of variance", ylim=(0, 1.04))
    ax.set_xticks(places[:: max(1, len(places) // 10)])
    ax.legend(loc="center right")
    return ax


def confusion(counts: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """A confusion matrix `(a, c)` of `decision.confusion_matrix`: actions down, truths across, in shares of truth.

    >>> confusion(jnp.array([[5, 1], [0, 4]]), names=["no", "yes"]).get_ylabel()
    'decided'
    """
    ax, counts = axes(ax), array("counts", counts, 2, "(a, c)")
    names = names_of(names, counts.shape[1], "classes")
    total = counts.sum(axis=0, keepdims=True)
    shares = counts / np.where(total > 0, total, 1)
    heat_map(ax, shares)
    for (i, j), share in np.ndenumerate(shares):
        if counts[i, j]:
            ax.text(j, i, f"{counts[i, j]:g}", ha="center", va="center", color="w" if share > 0.6 else INK)
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(counts)), [*names, "reject"][: len(counts)])
    ax.set(xlabel="truth", ylabel="decided")
    return ax


def label_image(
    labels: Any, ax: Any = None, *, num_labels: int | None = None, names: Sequence[str] | None = None
) -> Any:
    """Labels `(h, w)` of a grid as an image, one color each; or marginals `(h, w, k)`, colors mixed by probability.

    Labels of -1 are white. `num_labels` keeps colors alike between images; `names` make a legend.

    >>> ax = label_image(jnp.array([[0, 1], [1, 1]]))
    """
    ax, labels = axes(ax), np.asarray(labels)
    if labels.ndim not in (2, 3):
        raise ValueError(f"labels has shape {labels.shape}; wanted labels (h, w) or marginals (h, w, k).")
    num = labels.shape[2] if labels.ndim == 3 else max(num_labels or 0, int(labels.max()) + 1)
    palette = colors(num)
    picture = (
        np.clip(labels @ palette, 0, 1) if labels.ndim == 3 else np.concatenate([palette, np.ones((1, 3))])[labels]
    )
    ax.imshow(picture, interpolation="nearest")
    if names is not None:
        for name, color in zip(names_of(names, num, "labels"), palette, strict=True):
            ax.plot([], [], "s", color=color, label=name)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    ax.set_axis_off()
    return ax

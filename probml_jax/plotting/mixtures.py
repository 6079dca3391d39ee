"""Densities, mixtures and who is responsible for what."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._distribution import AbstractDistribution
from ..mixtures.kmeans import KMeans
from ..mixtures.mixture import Mixture
from .canvas import INK, array, axes, colors


def ellipse(loc: Any, covariance: Any, ax: Any = None, *, num_sigma: float = 2.0, **style: Any) -> Any:
    """The contour of a Gaussian in the plane at `num_sigma` standard deviations; `loc (2,)`, `covariance (2, 2)`.

    >>> len(ellipse(jnp.zeros(2), jnp.eye(2)).lines) > 0
    True
    """
    ax = axes(ax)
    loc, covariance = np.asarray(loc), np.asarray(covariance)
    if loc.shape != (2,) or covariance.shape != (2, 2):
        raise ValueError(f"loc and covariance have shapes {loc.shape} and {covariance.shape}; wanted (2,) and (2, 2).")
    angle = np.linspace(0, 2 * np.pi, 100)
    values, vectors = np.linalg.eigh(covariance)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    points = loc[:, None] + num_sigma * vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * circle)
    ax.plot(points[0], points[1], **style)
    return ax


def _moments(member: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Location and covariance of a Gaussian-like member, whatever its structure."""
    loc = getattr(member, "loc", None)
    if loc is None:
        raise TypeError(f"model has components without a location: component {k} is a {type(member).__name__}.")
    spread = getattr(member, "covariance", None)
    if spread is None:
        spread = getattr(member, "scale_matrix", None)
    if spread is None:
        spread = np.diag(np.broadcast_to(np.asarray(member.variance()), np.shape(loc)))
    return np.asarray(loc), np.asarray(spread() if callable(spread) else spread)


def _plane(xs: np.ndarray, dims: tuple[int, int] | None) -> list[int]:
    """The two features to draw."""
    d = xs.shape[1]
    if dims is None and d > 2:
        raise ValueError(f"xs has {d} features; say which two to draw, as in dims=(0, 1).")
    chosen = [0, 1] if dims is None else list(dims)
    if len(chosen) != 2 or not all(-d <= j < d for j in chosen):
        raise ValueError(f"dims must be two of the {d} features of xs; got {tuple(chosen)}.")
    return chosen


def mixture(
    model: Mixture | KMeans, xs: Any, ax: Any = None, *, dims: tuple[int, int] | None = None, num_sigma: float = 2.0
) -> Any:
    """Data `xs (n, d)` colored by responsibility, with an ellipse per component whose line is as thick as its weight.

    One feature is drawn as a histogram under the density and its weighted components; of more than two, `dims` says
    which. Points that lack a drawn entry are left out. Components must have a location; k-means has centers only.

    >>> from probml_jax.mixtures import gaussian_mixture
    >>> xs = jnp.concatenate([jnp.zeros((9, 2)), jnp.ones((9, 2))]) + jax.random.normal(jax.random.key(0), (18, 2))
    >>> ax = mixture(gaussian_mixture(jax.random.key(1), xs, 2), xs)
    >>> mixture(gaussian_mixture(jax.random.key(1), xs, 2), jnp.zeros((18, 4)))
    Traceback (most recent call last):
    ValueError: xs has 4 features; say which two to draw, as in dims=(0, 1).
    """
    ax, xs = axes(ax), array("xs", xs, 2, "(n, d)")
    if isinstance(model, KMeans):
        return _clusters(model, xs, ax, _plane(xs, dims))
    if xs.shape[1] == 1:
        return _density(model, xs[:, 0], ax)
    plane = _plane(xs, dims)
    model, palette = model.plug_in(), colors(model.num_components)
    shares = np.asarray(jax.vmap(model.posterior)(jnp.asarray(xs)))
    _points(ax, xs[:, plane], np.clip(shares @ palette, 0, 1))
    probs = np.asarray(model.weights.point().probs)
    for k in range(model.num_components):
        loc, covariance = _moments(model.components.member(k).point(), k)
        ellipse(
            loc[plane], covariance[np.ix_(plane, plane)], ax, num_sigma=num_sigma, color=palette[k], lw=1 + 3 * probs[k]
        )
        ax.plot(*loc[plane], "o", color=palette[k], mec="k", ms=8)
    return ax


def _points(ax: Any, xs: np.ndarray, shades: np.ndarray) -> None:
    complete = ~np.isnan(xs).any(axis=1)
    ax.scatter(*xs[complete].T, c=shades[complete], s=16, alpha=0.7, lw=0)


def _clusters(model: KMeans, xs: np.ndarray, ax: Any, dims: list[int]) -> Any:
    palette = colors(model.num_components)
    _points(ax, xs[:, dims], palette[np.asarray(jax.vmap(model.predict)(jnp.asarray(xs)))])
    for center, color in zip(np.asarray(model.centers)[:, dims], palette, strict=True):
        ax.plot(*center, "o", color=color, mec="k", ms=9)
    return ax


def _density(model: Mixture, xs: np.ndarray, ax: Any) -> Any:
    margin = 0.1 * np.nanstd(xs)
    grid = np.linspace(np.nanmin(xs) - margin, np.nanmax(xs) + margin, 400).astype(xs.dtype)
    ax.hist(xs[~np.isnan(xs)], bins=40, density=True, color="0.88")
    joint = np.exp(np.asarray(model.log_joint(jnp.asarray(grid)[:, None])))
    for part, color in zip(joint, colors(len(joint)), strict=True):
        ax.fill_between(grid, part, color=color, alpha=0.25, lw=0)
        ax.plot(grid, part, color=color, lw=1.2)
    ax.plot(grid, joint.sum(axis=0), color=INK, lw=2, label="density")
    ax.set(ylabel="density", ylim=(0, None))
    return ax


def responsibilities(model: Mixture, xs: Any, ax: Any = None) -> Any:
    """The posterior of the component of every unit as a stacked bar, units in order of their best component.

    Sharp steps between colors mean clusters that are told apart; ramps mean that they overlap.

    >>> from probml_jax.mixtures import gaussian_mixture
    >>> xs = jnp.concatenate([jnp.zeros((9, 2)), jnp.ones((9, 2))]) + jax.random.normal(jax.random.key(0), (18, 2))
    >>> responsibilities(gaussian_mixture(jax.random.key(1), xs, 2), xs).get_ylabel()
    'responsibility'
    """
    ax, shares = axes(ax), np.asarray(model.responsibilities(jnp.asarray(xs))[0])
    best, n = shares.argmax(axis=0), shares.shape[1]
    shares = shares[:, np.lexsort((-shares[best, np.arange(n)], best))]
    edges = np.concatenate([np.zeros((1, n)), np.cumsum(shares, axis=0)])
    stretched = np.concatenate([edges, edges[:, -1:]], axis=1)  # the last bar has a right side, too
    for k, color in enumerate(colors(len(shares))):
        ax.fill_between(np.arange(n + 1), stretched[k], stretched[k + 1], step="post", color=color, lw=0, label=str(k))
    ax.set(xlim=(0, n), ylim=(0, 1), xlabel="units, by component", ylabel="responsibility")
    ax.legend(title="component", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


def density(
    distribution: AbstractDistribution | Mixture, *grids: Any, ax: Any = None, levels: Any = 10, **style: Any
) -> Any:
    """The density of a distribution over one grid of values, or its contours over two.

    `distribution.log_prob` takes one event: a number for one grid (or a vector of one entry), a vector of two for two.
    Contours are at `levels` of the *log* density if these are given as numbers, else at that many levels of it.

    >>> from probml_jax.distributions import Normal
    >>> density(Normal(0.0, 1.0), jnp.linspace(-3, 3, 50)).get_ylabel()
    'density'
    """
    ax = axes(ax)
    if len(grids) not in (1, 2):
        raise ValueError(f"density draws over one or two grids; got {len(grids)}.")
    across = [array(f"grids[{i}]", grid, 1, "(m,)") for i, grid in enumerate(grids)]
    if len(grids) == 1:
        inside = distribution.log_prob if _takes_numbers(distribution) else lambda x: distribution.log_prob(x[None])
        ax.plot(across[0], np.exp(jax.jit(jax.vmap(inside))(jnp.asarray(across[0]))), **style)
        ax.set_ylabel("density")
        return ax
    mesh = np.stack(np.meshgrid(*across), axis=-1)
    values = np.asarray(jax.jit(jax.vmap(jax.vmap(distribution.log_prob)))(jnp.asarray(mesh)))
    if isinstance(levels, int):
        top = values.max()
        levels = np.linspace(top - 8, top, levels + 1)[:-1]
    ax.contour(*across, values, levels=levels, **({"cmap": "viridis", "linewidths": 1} | style))
    return ax


def _takes_numbers(distribution: Any) -> bool:
    """Whether one event is a number: the shape of what is sampled tells."""
    return jax.eval_shape(distribution.sample, jax.random.key(0)).shape == ()

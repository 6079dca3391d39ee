"""Pictures with matplotlib (the extra `plot`). Each function draws on an `Axes` and returns it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._fit import Fit, Status
from .gaussian_processes import GaussianProcess
from .graphs import AbstractGraph, BayesNet, Marginals
from .inference.blocks import in_blocks
from .mixtures.mixture import Mixture
from .selection import Table


def _axes(ax: Any) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'probml_jax[plot]'") from error
    return plt.gca() if ax is None else ax


def _covariance(member: Any) -> np.ndarray:
    """Covariance of a Gaussian-like member, whatever its structure."""
    spread = getattr(member, "covariance", None)
    if spread is None:
        spread = getattr(member, "scale_matrix", None)
    if spread is not None:
        return np.asarray(spread() if callable(spread) else spread)
    return np.diag(np.broadcast_to(np.asarray(member.variance()), np.shape(member.loc)))


def ellipse(ax: Any, loc: Any, covariance: Any, num_sigma: float = 2.0, **style: Any) -> Any:
    """The contour of a two-dimensional Gaussian at `num_sigma` standard deviations.

    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> patch = ellipse(ax, [0.0, 0.0], [[4.0, 0.0], [0.0, 1.0]], num_sigma=1.0)
    >>> plt.close(figure)
    """
    angle = np.linspace(0, 2 * np.pi, 100)
    values, vectors = np.linalg.eigh(np.asarray(covariance))
    circle = np.stack([np.cos(angle), np.sin(angle)])
    points = np.asarray(loc)[:, None] + num_sigma * vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * circle)
    return ax.plot(points[0], points[1], **style)


def mixture(model: Mixture, xs: Any, ax: Any = None, dims: tuple[int, int] = (0, 1)) -> Any:
    """Data in two dimensions colored by responsibility, with each component's two-sigma ellipse.

    One-dimensional data are drawn as a histogram under the density and its weighted components.
    """
    ax = _axes(ax)
    xs = np.asarray(xs)
    if xs.shape[1] == 1:
        return _density(model, xs[:, 0], ax)
    model = model.plug_in()
    import matplotlib.pyplot as plt

    colors = plt.get_cmap("tab10")(np.arange(model.num_components) % 10)[:, :3]
    shares = np.asarray(jax.vmap(model.posterior)(jnp.asarray(xs)))
    complete = ~np.isnan(xs[:, list(dims)]).any(axis=1)
    ax.scatter(*xs[complete][:, list(dims)].T, c=np.clip(shares[complete] @ colors, 0, 1), s=14, alpha=0.7, lw=0)
    probs = np.asarray(model.weights.point().probs)
    for k in range(model.num_components):
        member = model.components.member(k).point()
        covariance = _covariance(member)[np.ix_(dims, dims)]
        ellipse(ax, np.asarray(member.loc)[list(dims)], covariance, color=colors[k], lw=1 + 3 * probs[k])
        ax.plot(*np.asarray(member.loc)[list(dims)], "x", color=colors[k], ms=8, mew=2)
    return ax


def _density(model: Mixture, xs: np.ndarray, ax: Any) -> Any:
    margin = 0.1 * np.nanstd(xs)
    grid = np.linspace(np.nanmin(xs) - margin, np.nanmax(xs) + margin, 400).astype(xs.dtype)
    ax.hist(xs[~np.isnan(xs)], bins=40, density=True, color="0.85")
    joint = np.exp(np.asarray(model.log_joint(jnp.asarray(grid)[:, None])))
    for part in joint:
        ax.plot(grid, part, lw=1)
    ax.plot(grid, joint.sum(axis=0), "k", lw=2)
    ax.set_ylabel("density")
    return ax


def trace(result: Fit, ax: Any = None, **style: Any) -> Any:
    """The objective after each step; one line per fit of a batch."""
    ax = _axes(ax)
    objective = np.atleast_2d(np.asarray(result.objective))
    steps = np.ravel(np.asarray(result.num_steps))
    for row, count in zip(objective, steps, strict=True):
        ax.plot(np.arange(count + 1), row[: count + 1], **style)
    statuses = {Status(int(s)).name for s in np.ravel(np.asarray(result.status))}
    ax.set_xlabel("step")
    ax.set_ylabel("objective")
    ax.set_title(", ".join(sorted(statuses)))
    return ax


def selection(table: Table, criterion: str = "bic", ax: Any = None) -> Any:
    """A criterion against the number of components, one line per covariance, the winner circled."""
    ax = _axes(ax)
    columns = table.to_dict()
    groups = columns.get("covariance", [""] * len(table.rows))
    for name in dict.fromkeys(groups):
        chosen = [i for i, g in enumerate(groups) if g == name]
        ks = [columns["num_components"][i] for i in chosen]
        ax.plot(ks, [columns[criterion][i] for i in chosen], "o-", label=name)
    best = table.best(criterion)
    ax.plot(best.settings["num_components"], getattr(best, criterion), "ko", ms=12, fillstyle="none")
    ax.set_xlabel("components")
    ax.set_ylabel(criterion)
    ax.legend()
    return ax


def forecast(
    times: Any, prediction: Any, ax: Any = None, probability: float = 0.95, feature: int = 0, **style: Any
) -> Any:
    """The mean of a `Forecast` and its interval as a fan, for one feature."""
    ax = _axes(ax)
    low, high = prediction.interval(probability)
    (line,) = ax.plot(times, np.asarray(prediction.mean)[:, feature], **style)
    ends = np.asarray(low)[:, feature], np.asarray(high)[:, feature]
    ax.fill_between(times, *ends, color=line.get_color(), alpha=0.2, lw=0)
    return ax


def process(gp: GaussianProcess, x: Any, ax: Any = None, num_sigma: float = 2.0, **style: Any) -> Any:
    """Mean and band of a Gaussian process over one-dimensional inputs, with the observations it has seen.

    The band is that of the function; observations scatter by their noise around it.
    """
    ax = _axes(ax)
    x = jnp.ravel(jnp.asarray(x, gp.noise.dtype))
    mean, width = np.asarray(gp.mean(x)), num_sigma * np.sqrt(np.asarray(gp.variance(x)))
    (line,) = ax.plot(x, mean, **style)
    ax.fill_between(x, mean - width, mean + width, alpha=0.2, color=line.get_color(), linewidth=0)
    if gp.evidence is not None:
        seen = np.ravel(np.asarray(gp.evidence.xs))
        values = np.asarray(gp.evidence.residual) + np.asarray(jax.vmap(gp.mean_function)(gp.evidence.xs))
        ax.plot(seen, values, ".", color="black", markersize=3)
    return ax


def _layers(net: BayesNet) -> dict[int, tuple[float, float]]:
    """Every variable below its parents, and roots just above their children.

    Within a layer variables stand in the order of the mean place of their parents.
    """
    depth: dict[int, int] = {}
    while len(depth) < len(net.parents):
        for v, above in enumerate(net.parents):
            if v not in depth and all(p in depth for p in above):
                depth[v] = max((depth[p] + 1 for p in above), default=0)
    below = {v: [c for c, above in enumerate(net.parents) if v in above] for v in depth}
    for v in depth:
        if not net.parents[v] and below[v]:
            depth[v] = min(depth[c] for c in below[v]) - 1
    places: dict[int, tuple[float, float]] = {}
    for level in sorted(set(depth.values())):
        here = [v for v in depth if depth[v] == level]
        means = {v: np.mean([places[p][0] for p in net.parents[v]]) if net.parents[v] else 0.5 for v in here}
        here.sort(key=means.__getitem__)
        # neighbors stand a little higher and lower, so that long names do not meet
        lift = lambda i, n=len(here), level=level: -level + (0.3 * (i % 2) if n > 4 else 0)
        places |= {v: ((i + 0.5) / len(here), float(lift(i))) for i, v in enumerate(here)}
    return places


def _springs(num: int, edges: list[tuple[int, int]], steps: int = 200) -> np.ndarray:
    """Places in which joined nodes attract and all others repel each other, on a slowly cooling board."""
    rng = np.random.default_rng(0)
    places, joined = rng.normal(size=(num, 2)), np.zeros((num, num))
    for a, b in edges:
        joined[a, b] = joined[b, a] = 1
    ideal = 1 / np.sqrt(num)
    for heat in np.linspace(0.1, 0.002, steps):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.linalg.norm(apart, axis=-1), 1e-3)[..., None]
        force = np.sum(apart / distance * (ideal**2 / distance - joined[..., None] * distance**2 / ideal), axis=1)
        places = places + heat * force / np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
    return places


def _shades(graph: AbstractGraph, marginals: Marginals | None, state: int) -> list[Any]:
    import matplotlib.pyplot as plt

    colors = plt.get_cmap("Blues")
    if marginals is None:
        return ["white"] * len(graph.variables)
    return [colors(0.8 * float(p[min(state, len(p) - 1)])) for p in marginals.probs]


def network(
    graph: AbstractGraph, ax: Any = None, marginals: Marginals | None = None, *, state: int = 1, size: float = 9.0
) -> Any:
    """A graph: layers with arrows for a Bayesian network; circles for variables and squares for tables otherwise.

    With `marginals` each variable is shaded by the probability of `state`. `size` is that of the names.
    """
    ax = _axes(ax)
    shades = _shades(graph, marginals, state)
    if isinstance(graph, BayesNet):
        places = _layers(graph)
        arrow = {"arrowstyle": "-|>", "color": "gray", "shrinkA": 1.4 * size, "shrinkB": 1.4 * size, "lw": 0.8}
        for v, above in enumerate(graph.parents):
            for p in above:
                ax.annotate("", xy=places[v], xytext=places[p], arrowprops=arrow)
    else:
        n = len(graph.variables)
        links = [(v, n + f) for f, scope in enumerate(graph.scopes) for v in scope]
        spots = _springs(n + len(graph.scopes), links)
        for a, b in links:
            ax.plot(*spots[[a, b]].T, color="gray", lw=0.8, zorder=0)
        ax.plot(*spots[n:].T, "s", color="black", markersize=5)
        places = {v: tuple(spots[v]) for v in range(n)}
    for v, variable in enumerate(graph.variables):
        box = {"boxstyle": "round,pad=0.35", "facecolor": shades[v], "edgecolor": "black", "lw": 0.8}
        ax.text(*places[v], variable.name, ha="center", va="center", fontsize=size, bbox=box)
    ax.margins(0.15)
    ax.plot(*np.array([places[v] for v in range(len(places))]).T, ".", alpha=0)
    ax.set_axis_off()
    return ax


def decision_regions(model: Any, xs: Any, ys: Any, ax: Any = None, num: int = 200, margin: float = 0.3) -> Any:
    """The plane colored by the class probabilities of a classifier, with boundaries and labelled points `(n, 2)`.

    `model` has `probs(x)` of one event; points with a label of -1 are drawn as small gray dots.
    """
    import matplotlib.pyplot as plt

    ax, xs, ys = _axes(ax), np.asarray(xs), np.asarray(ys)
    low, high = np.nanmin(xs, axis=0), np.nanmax(xs, axis=0)
    low, high = low - margin * (high - low), high + margin * (high - low)
    across, up = (np.linspace(low[j], high[j], num) for j in range(2))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2).astype(xs.dtype)
    probs = np.asarray(in_blocks(model.probs, jnp.asarray(grid)))
    colors = plt.get_cmap("tab10")(np.arange(probs.shape[1]) % 10)[:, :3]
    picture = np.clip(0.55 + 0.45 * probs @ colors, 0, 1).reshape(num, num, 3)
    ax.imshow(picture, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto", zorder=0)
    for k in range(probs.shape[1]):
        rivals = np.delete(probs, k, axis=1).max(axis=1)
        gap = (probs[:, k] - rivals).reshape(num, num)
        if gap.min() < 0 < gap.max():
            ax.contour(across, up, gap, levels=[0], colors="k", linewidths=0.8)
    known = ys >= 0
    ax.scatter(*xs[~known].T, s=4, color="0.4", alpha=0.5)
    ax.scatter(*xs[known].T, c=colors[ys[known]], s=14, edgecolors="k", linewidths=0.3)
    return ax

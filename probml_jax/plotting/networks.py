"""Graphs of variables: Bayesian networks, factor graphs, and Markov chains as diagrams."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graphs import AbstractGraph, BayesNet, Marginals
from .canvas import INK, axes, colors, names_of, pyplot
from .matrices import transition_matrix


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


def _shares(graph: AbstractGraph, marginals: Marginals | None, state: int) -> list[float]:
    """The probability of `state` of each variable, or of its last state if it has fewer."""
    if marginals is None:
        return [0.0] * len(graph.variables)
    return [float(p[min(state, len(p) - 1)]) for p in marginals.probs]


def network(
    graph: AbstractGraph, ax: Any = None, *, marginals: Marginals | None = None, state: int = 1, size: float = 9.0
) -> Any:
    """A graph: layers with arrows for a Bayesian network; circles for variables and squares for tables otherwise.

    With `marginals` each variable is shaded by the probability of `state`. `size` is that of the names.

    >>> from probml_jax.graphs import BayesNet
    >>> net = BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]})
    >>> [text.get_text() for text in network(net).texts][-2:]
    ['a', 'b']
    """
    ax = axes(ax)
    shares, shade = _shares(graph, marginals, state), pyplot().get_cmap("Blues")
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
        box = {
            "boxstyle": "round,pad=0.35",
            "facecolor": shade(0.8 * shares[v]) if marginals is not None else "white",
            "edgecolor": "black",
            "lw": 0.8,
        }
        ink = "white" if shares[v] > 0.75 else "black"
        ax.text(*places[v], variable.name, ha="center", va="center", fontsize=size, color=ink, bbox=box)
    ax.margins(0.15)
    ax.plot(*np.array([places[v] for v in range(len(places))]).T, ".", alpha=0)
    ax.set_axis_off()
    return ax


def chain_diagram(
    model: Any, ax: Any = None, *, names: Sequence[str] | None = None, threshold: float = 0.01, size: float = 9.0
) -> Any:
    """A Markov chain as states on a circle and arrows as thick as their probabilities; below `threshold` none.

    `model` is a `MarkovChain`, an `HMM` or a matrix `(k, k)`. Many states are better seen by `transitions`.

    >>> ax = chain_diagram([[0.9, 0.1], [0.4, 0.6]], names=["calm", "storm"])
    """
    from matplotlib.patches import FancyArrowPatch

    ax, table = axes(ax), transition_matrix(model)
    k, palette = len(table), colors(len(table))
    names = names_of(names, k, "states")
    angle = np.pi / 2 - 2 * np.pi * np.arange(k) / k + (np.pi / 2 if k == 2 else 0)
    out = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    places = out * (1.0 if k > 1 else 0.0)
    head = {"arrowstyle": "-|>", "mutation_scale": 11}
    for (a, b), p in np.ndenumerate(table):
        if p < threshold:
            continue
        line = {"color": palette[a], "lw": 0.6 + 4 * p, "alpha": 0.85, **head}
        if a == b:  # out and back on the side that looks away from the others
            side = np.array([-out[a][1], out[a][0]])
            ends, top = (places[a] + 0.1 * out[a] + s * 0.2 * side for s in (1, -1)), places[a] + 0.62 * out[a]
            ax.add_patch(FancyArrowPatch(*ends, connectionstyle="arc3,rad=-1.6", **line))
        else:
            top = (places[a] + places[b]) / 2
            across = places[b] - places[a]
            top = top + 0.2 * np.array([-across[1], across[0]]) * -0.62
            patch = FancyArrowPatch(
                places[a], places[b], connectionstyle="arc3,rad=0.2", shrinkA=1.9 * size, shrinkB=1.9 * size, **line
            )
            ax.add_patch(patch)
        back = {"facecolor": "w", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
        ax.text(*top, f"{p:.2f}", ha="center", va="center", fontsize=0.85 * size, color=INK, bbox=back, zorder=4)
    for place, name, color in zip(places, names, palette, strict=True):
        box = {"boxstyle": "circle,pad=0.5", "facecolor": color, "edgecolor": "w"}
        ax.text(*place, name, ha="center", va="center", fontsize=size, color="w", bbox=box, zorder=3)
    ax.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
    ax.set_axis_off()
    return ax

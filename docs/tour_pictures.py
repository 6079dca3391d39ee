"""The pictures of the tour: `make pictures` draws them into docs/assets/."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from PIL import Image  # noqa: E402

import probml_jax as pml  # noqa: E402
from probml_jax import plotting  # noqa: E402


def mixture(ax) -> None:
    from sklearn.datasets import load_iris

    xs = jnp.asarray(load_iris().data[:, 2:], jnp.float32)
    restart = lambda key: pml.fit(pml.mixtures.gaussian_mixture(key, xs, 3), xs, max_steps=300)
    plotting.mixture(pml.best_of(jax.vmap(restart)(jr.split(jr.key(0), 8))).model, xs, ax)
    ax.set(xlabel="petal length", ylabel="petal width")


def regimes(ax) -> None:
    states = np.repeat([0, 1, 0, 1, 0], [300, 120, 250, 80, 250])
    returns = np.random.default_rng(6).normal(size=states.size) * np.where(states == 0, 0.6, 2.0)
    x = jnp.asarray(returns[:, None], jnp.float32)
    hmm = pml.fit(pml.sequences.gaussian_hmm(jr.key(6), x[None], 2, "diagonal"), x[None]).model
    nervous = int(jnp.argmax(hmm.emission.each.distribution.scale[:, 0]))
    ax.plot(np.cumsum(returns), color="0.4", lw=0.8)
    ax.set_ylabel("price")
    shade = ax.twinx()
    shade.fill_between(np.arange(states.size), np.asarray(hmm.smooth(x)[:, nervous]), alpha=0.3, color="C3")
    shade.set_ylabel("probability of the nervous state")


def forecast(ax) -> None:
    time = np.arange(60)
    noise = np.random.default_rng(2).normal(size=60)
    y = jnp.asarray((0.1 * time + np.sin(2 * np.pi * time / 12) + 0.25 * noise)[:, None], jnp.float32)
    model = pml.sequences.combine(pml.sequences.local_trend(y[None]), pml.sequences.seasonal(12, y[None]))
    model = pml.fit(model, y[None], pml.LBFGS(), max_steps=100).model
    ax.plot(time, y[:, 0], "k.", ms=4)
    plotting.forecast(60 + np.arange(24), model.forecast(y, 24), ax)


def process(ax) -> None:
    kernels = pml.gaussian_processes.kernels
    x = jnp.array([0.3, 0.9, 1.6, 2.1, 4.2, 4.6])
    gp = pml.gaussian_processes.GaussianProcess(kernels.Matern52(1.0), noise=0.01).condition(x, jnp.sin(2 * x))
    plotting.process(gp, np.linspace(0, 6, 200), ax)


def regions(ax) -> None:
    from sklearn.datasets import load_iris

    data = load_iris()
    xs = jnp.asarray(data.data[:, 2:], jnp.float32)
    plotting.decision_regions(pml.classifiers.qda(xs, data.target), xs, data.target, ax)
    ax.set(xlabel="petal length", ylabel="petal width")


def network(ax) -> None:
    net = pml.graphs.BayesNet(
        {"cloudy": (), "sprinkler": ("cloudy",), "rain": ("cloudy",), "wet": ("sprinkler", "rain")},
        {
            "cloudy": [0.5, 0.5],
            "sprinkler": [[0.5, 0.5], [0.9, 0.1]],
            "rain": [[0.8, 0.2], [0.2, 0.8]],
            "wet": [[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]],
        },
    )
    plotting.network(net, ax, net.marginals(evidence={"wet": 1}))


def main() -> None:
    folder = ROOT / "docs" / "assets"
    for draw in (mixture, regimes, forecast, process, regions, network):
        layout = None if draw is network else "constrained"  # a network has no decorations to make room for
        figure, ax = plt.subplots(figsize=(6, 3.4), layout=layout)
        draw(ax)
        path = folder / f"{draw.__name__}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        # 64 colors are enough for lines and bands, and a third of the size
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
        print(path.relative_to(ROOT), path.stat().st_size)


if __name__ == "__main__":
    main()

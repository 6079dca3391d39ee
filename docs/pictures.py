"""The pictures of the README: `make pictures` writes them to docs/images/."""

import pathlib

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris, make_moons
from statsmodels.datasets import macrodata, nile

import probml_jax as pml
from probml_jax import plotting

FOLDER = pathlib.Path(__file__).parent / "images"


def mixture(ax) -> None:
    """Three kinds of iris, found without their names."""
    xs = jnp.asarray(load_iris().data[:, 2:].astype(np.float32))
    start = lambda key: pml.fit(pml.mixtures.gaussian_mixture(key, xs, num_components=3), xs, max_steps=300)
    best = pml.best_of(jax.jit(jax.vmap(start))(jr.split(jr.key(0), 8)))
    plotting.mixture(best.model, xs, ax)
    ax.set(xlabel="petal length", ylabel="petal width", title="Gaussian mixture")


def states(ax) -> None:
    """Steady and unsteady years of the American economy."""
    macro = macrodata.load_pandas().data
    growth = jnp.asarray((400 * np.diff(np.log(macro["realgdp"]))).astype(np.float32))[:, None]
    quarters = (macro["year"] + (macro["quarter"] - 1) / 4).to_numpy()[1:]
    start = lambda key: pml.sequences.gaussian_hmm(key, growth[None], 2, "diagonal")
    run = lambda key: pml.fit(start(key), growth[None], max_steps=300)
    model = pml.best_of(jax.jit(jax.vmap(run))(jr.split(jr.key(0), 8))).model
    order = jnp.argsort(model.emission.each.distribution.scale[:, 0])
    model = pml.sequences.permute_states(model, jnp.argsort(order))
    plotting.posterior_states(model, growth, ax, times=quarters, names=["steady", "unsteady"])
    ax.set(ylabel="growth of GDP, % a year", title="Hidden Markov model")


def forecast(ax) -> None:
    """The Nile, smoothed and foretold."""
    flow = jnp.asarray(nile.load().data.volume.to_numpy(np.float32))[:, None]
    model = pml.fit(pml.sequences.local_level(flow[None]), flow[None], pml.LBFGS()).model
    years = 1871 + np.arange(130)
    ax.plot(years[:100], flow[:, 0], ".", color="0.6", ms=4)
    plotting.forecast(years[:100], model.observe(flow), ax, color=plotting.PALETTE[0])
    plotting.forecast(years[100:], model.forecast(flow, steps=30), ax, color=plotting.PALETTE[1])
    ax.set(ylabel="flow of the Nile", title="Kalman smoother and forecast")


def regions(ax) -> None:
    """Two moons and the probability of each, everywhere."""
    xs, ys = make_moons(150, noise=0.2, random_state=0)
    xs = xs.astype(np.float32)
    start = pml.gaussian_processes.GaussianProcessClassifier(1.0 * pml.gaussian_processes.kernels.RBF(1.0))
    model = pml.fit(start, (xs, ys), pml.LBFGS(), max_steps=50).model.condition(xs, ys)
    plotting.decision_regions(model, xs, ys, ax, num=60)
    ax.set_title("Gaussian-process classifier")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (mixture, states, forecast, regions):
        figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
        draw(ax)
        figure.savefig(FOLDER / f"{draw.__name__}.png", dpi=85)
        print(FOLDER / f"{draw.__name__}.png")

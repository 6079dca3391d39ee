"""Every public picture is drawn, is not blank, and goes where it is told."""

import functools
import inspect

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pytest

import probml_jax as pml
from probml_jax import plotting


@functools.cache
def points():
    return jnp.concatenate([jr.normal(jr.key(0), (40, 2)), 6 + jr.normal(jr.key(1), (40, 2))])


LABELS = np.arange(80) // 40


@functools.cache
def restarted():
    start = lambda key: pml.fit(pml.mixtures.gaussian_mixture(key, points(), 2), points(), max_steps=20)
    return jax.vmap(start)(jr.split(jr.key(3), 4))


@functools.cache
def fitted():
    return pml.best_of(restarted())


def _stack(family, *parameters):
    return pml.Stacked(pml.ML(jax.vmap(family)(*map(jnp.array, parameters))))


def _halves(family, *parameters):
    """A mixture of two equal halves: what a builder would compile is not what is drawn here."""
    return pml.mixtures.Mixture(
        pml.ML(pml.distributions.Categorical(jnp.array([0.5, 0.5]))), _stack(family, *parameters)
    )


@functools.cache
def regimes():
    hmm = pml.sequences.HMM(
        pml.ML(pml.distributions.Categorical(jnp.array([0.5, 0.5]))),
        _stack(pml.distributions.Categorical, [[0.9, 0.1], [0.2, 0.8]]),
        _stack(pml.distributions.Normal, [[0.0], [6.0]], [[1.0], [1.0]]),
    )
    return hmm, points()[:, :1]


@functools.cache
def scores():
    """Two scores of the first forty against the last forty points."""
    x = np.asarray(points())
    return {"first": x[:, 0], "noisy": x[:, 1] + 6 * np.random.default_rng(0).normal(size=80)}


@functools.cache
def network():
    return pml.graphs.BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]})


def _process(ax):
    gp = pml.gaussian_processes.GaussianProcess(pml.gaussian_processes.kernels.RBF(0.3), noise=0.1)
    seen = gp.condition(jnp.array([0.2, 0.7]), jnp.array([1.0, -1.0]))
    return plotting.process(seen, np.linspace(0, 1, 20), ax, num_samples=2, key=jr.key(0))


def _forecast(ax):
    level = pml.sequences.local_level()
    return plotting.forecast(range(5), level.forecast(level.sample(jr.key(0), 20)[1], 5), ax)


def _selection(ax):
    found = fitted()
    row = lambda k, bic: pml.selection.Row({"num_components": k, "covariance": "full"}, found, 0.0, 1, bic, *[0.0] * 5)
    return plotting.selection(pml.selection.Table((row(1, 5.0), row(2, 3.0), row(3, 4.0))), ax=ax)


CHAIN = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.4, 0.0, 0.6]])
# name -> function that draws the picture of that name on an axes
PICTURES = {
    "band": lambda ax: plotting.band(range(5), np.arange(5.0), np.ones(5), ax),
    "calibration": lambda ax: plotting.calibration(
        {name: 1 / (1 + np.exp(3 - s)) for name, s in scores().items()}, LABELS, ax
    ),
    "chain_diagram": lambda ax: plotting.chain_diagram(CHAIN, ax, names=["sun", "rain", "snow"]),
    "confusion": lambda ax: plotting.confusion(np.array([[5, 1], [2, 9]]), ax, names=["no", "yes"]),
    "decision_regions": lambda ax: plotting.decision_regions(
        pml.classifiers.lda(points(), LABELS), points(), LABELS, ax, num=30, levels=[0.9], names=["a", "b"]
    ),
    "density": lambda ax: plotting.density(fitted().model, np.linspace(-3, 9, 20), np.linspace(-3, 9, 20), ax=ax),
    "det": lambda ax: plotting.det(scores(), LABELS, ax),
    "ellipse": lambda ax: plotting.ellipse(np.zeros(2), np.array([[2.0, 1.0], [1.0, 1.0]]), ax),
    "forecast": _forecast,
    "label_image": lambda ax: plotting.label_image(np.arange(12).reshape(3, 4) % 3, ax, names=["a", "b", "c"]),
    "loadings": lambda ax: plotting.loadings(pml.factors.PCA.from_data(points(), 2), ax, names=["x", "y"]),
    "marginals": lambda ax: plotting.marginals(CHAIN, ax, path=[0, 1, 2], names=list("abc"), steps=list("xyz")),
    "mixture": lambda ax: plotting.mixture(fitted().model, points(), ax),
    "network": lambda ax: plotting.network(network(), ax, marginals=network().marginals()),
    "posterior_states": lambda ax: plotting.posterior_states(*regimes(), ax, names=["low", "high"]),
    "precision_recall": lambda ax: plotting.precision_recall(scores(), LABELS, ax),
    "process": _process,
    "responsibilities": lambda ax: plotting.responsibilities(fitted().model, points(), ax),
    "restarts": lambda ax: plotting.restarts(restarted(), ax),
    "roc": lambda ax: plotting.roc(scores(), LABELS, ax, cost={"a miss costs five": [[0, 5], [1, 0]]}, interval=True),
    "scree": lambda ax: plotting.scree(np.array([0.6, 0.3, 0.1]), ax),
    "selection": _selection,
    "trace": lambda ax: plotting.trace(restarted(), ax),
    "transitions": lambda ax: plotting.transitions(CHAIN, ax),
}
# other roads through the same functions
VARIANTS = {
    "costs": lambda ax: plotting.decision_regions(
        pml.classifiers.lda(points(), LABELS), points(), LABELS, ax, num=30, cost=[[0.0, 5.0], [1.0, 0.0]]
    ),
    "factor_graph": lambda ax: plotting.network(pml.graphs.FactorGraph.from_graph(network()), ax),
    "line_of_density": lambda ax: plotting.density(fitted().model.marginal([0]), np.linspace(-3, 9, 20), ax=ax),
    "k_means": lambda ax: plotting.mixture(pml.mixtures.KMeans(points()[::40]), points(), ax),
    "mixture_diagonal": lambda ax: plotting.mixture(
        _halves(pml.distributions.Normal, [[0.0, 0.0], [6.0, 6.0]], [[1.0, 2.0], [2.0, 1.0]]), points(), ax
    ),
    "mixture_of_one_feature": lambda ax: plotting.mixture(fitted().model.marginal([0]), points()[:, :1], ax),
    "shares_of_labels": lambda ax: plotting.label_image(CHAIN.reshape(3, 1, 3), ax),
}


def _drawn(draw):
    """The pixels of a picture."""
    figure, ax = plt.subplots(figsize=(3, 2), dpi=50)
    found = draw(ax)
    assert found is ax
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    plt.close(figure)
    return pixels


@functools.cache
def _empty(framed):
    return _drawn(lambda ax: ax if framed else (ax.set_axis_off(), ax)[1])


@pytest.mark.parametrize("name", [*PICTURES, *VARIANTS])
def test_a_picture_is_not_blank(name):
    pixels = _drawn((PICTURES | VARIANTS)[name])
    for framed in (True, False):
        changed = np.abs(pixels - _empty(framed)).sum(axis=-1) > 60
        inside = changed[10:80, 25:130]  # without the numbers on the axes
        assert inside.mean() > 0.01, f"{name} is blank"


def test_every_public_picture_is_in_the_registry():
    public = {name for name, value in vars(plotting).items() if inspect.isfunction(value) and name[0] != "_"}
    assert public == set(PICTURES)


def test_the_current_axes_are_the_default():
    figure, ax = plt.subplots()
    assert plotting.scree(np.array([0.6, 0.4])) is ax
    assert plotting.ellipse(np.zeros(2), np.eye(2)) is ax
    plt.close(figure)


def test_the_room_is_loaded_without_matplotlib():
    import subprocess
    import sys

    check = "import sys, probml_jax as pml; pml.plotting.mixture; assert 'matplotlib' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WRONG = {
    "dims": lambda: plotting.mixture(fitted().model, jnp.tile(points(), (1, 2))),
    "dims of": lambda: plotting.mixture(fitted().model, points(), dims=(0, 2)),
    "xs": lambda: plotting.mixture(fitted().model, points()[0]),
    "xs and ys": lambda: plotting.decision_regions(None, points(), LABELS[:3]),
    "covariance": lambda: plotting.ellipse(np.zeros(3), np.eye(3)),
    "grids": lambda: plotting.density(fitted().model, points()),
    "scale": lambda: plotting.band(range(3), np.zeros(3), np.zeros(2)),
    "key": lambda: plotting.process(
        pml.gaussian_processes.GaussianProcess(pml.gaussian_processes.kernels.RBF(0.3)), np.zeros(3), num_samples=1
    ),
    "times": lambda: plotting.posterior_states(*regimes(), times=range(3)),
    "series": lambda: plotting.posterior_states(*regimes(), series=range(3)),
    "names": lambda: plotting.transitions(CHAIN, names=["a"]),
    "square": lambda: plotting.chain_diagram(CHAIN[:2]),
    "path": lambda: plotting.marginals(CHAIN, path=[0]),
    "labels": lambda: plotting.label_image(np.arange(3)),
    "counts": lambda: plotting.confusion(np.arange(3)),
    "criterion": lambda: plotting.selection(pml.selection.Table((_row(),)), "bits"),
    "fits": lambda: plotting.restarts(jax.tree_util.tree_map(lambda a: a[None, None], restarted())),
}


def _row():
    return pml.selection.Row({"num_components": 1}, fitted(), 0.0, 1, *[0.0] * 6)


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_argument(name):
    with pytest.raises(ValueError, match=name.split()[0]):
        WRONG[name]()
    plt.close("all")


def test_components_without_a_place_are_refused():
    rows = (points() > 3).astype(float)
    with pytest.raises(TypeError, match="Bernoulli"):
        plotting.mixture(_halves(pml.distributions.Bernoulli, [[0.1, 0.2], [0.9, 0.8]]), rows)
    plt.close("all")


def test_numbers_in_legends_are_those_of_the_room_of_decisions():
    figure, ax = plt.subplots()
    plotting.roc(scores(), LABELS, ax)
    shown = [float(text.get_text().split(": ")[1]) for text in ax.get_legend().get_texts()]
    assert shown == [round(float(pml.decision.auc(s, LABELS)), 3) for s in scores().values()]
    plt.close(figure)

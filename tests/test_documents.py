"""What the README says runs, what the tour promises appears, and pictures are not blank."""

import pathlib
import re
import subprocess
import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml

ROOT = pathlib.Path(__file__).parent.parent


def test_the_readme_runs_as_its_reader_would_run_it(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 3
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "converged" in done.stdout


def test_the_guided_tour(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "probml_jax", str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("converged") >= 5
    assert "nonfinite" not in done.stdout
    assert len(list(tmp_path.glob("*.png"))) == 6


@pytest.fixture(scope="module")
def fitted():
    xs = jnp.concatenate([jr.normal(jr.key(0), (40, 2)), 6 + jr.normal(jr.key(1), (40, 2))])
    return pml.fit(pml.mixtures.gaussian_mixture(jr.key(2), xs, 2), xs), xs


def _drawn(draw):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    draw(ax)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    plt.close(figure)
    return len(np.unique(pixels.reshape(-1, 4), axis=0))


def test_pictures_are_not_blank(fitted):
    from probml_jax import plotting

    result, xs = fitted
    blank = _drawn(lambda ax: None)
    assert _drawn(lambda ax: plotting.mixture(result.model, xs, ax)) > blank + 20
    regions = pml.classifiers.lda(xs[:, :2], np.arange(len(xs)) % 2)
    assert _drawn(lambda ax: plotting.decision_regions(regions, xs[:, :2], np.arange(len(xs)) % 2, ax, 30)) > blank + 20
    assert _drawn(lambda ax: plotting.trace(result, ax)) > blank + 5
    one = pml.mixtures.gaussian_mixture(jr.key(0), xs[:, :1], 2)
    assert _drawn(lambda ax: plotting.mixture(one, xs[:, :1], ax)) > blank + 20
    diagonal = pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, "diagonal")
    assert _drawn(lambda ax: plotting.mixture(diagonal, xs, ax)) > blank + 20
    table = pml.selection.gaussian_mixture_table(jr.key(3), xs, [1, 2], ["full"], num_restarts=2)
    assert _drawn(lambda ax: plotting.selection(table, ax=ax)) > blank + 20
    level = pml.sequences.local_level()
    ahead = level.forecast(level.sample(jr.key(0), 20)[1], 5)
    assert _drawn(lambda ax: plotting.forecast(range(5), ahead, ax)) > blank + 5
    net = pml.graphs.BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]})
    empty = _drawn(lambda ax: ax.set_axis_off())
    assert _drawn(lambda ax: plotting.network(net, ax, net.marginals())) > empty + 20
    assert _drawn(lambda ax: plotting.network(pml.graphs.FactorGraph.from_graph(net), ax)) > empty + 20
    gp = pml.gaussian_processes.GaussianProcess(pml.gaussian_processes.kernels.RBF(0.3), noise=0.1)
    post = gp.condition(jnp.array([0.2, 0.7]), jnp.array([1.0, -1.0]))
    assert _drawn(lambda ax: plotting.process(post, np.linspace(0, 1, 50), ax)) > blank + 20

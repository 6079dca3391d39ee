"""Several hosts, as two processes on the loopback device that each hold a part of the data."""

import importlib.util
import pathlib

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml

PATH = pathlib.Path(__file__).parent.parent / "examples" / "many_hosts.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("many_hosts", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_processes_find_the_fit_of_one_and_survive_a_loss(example, tmp_path):
    lost = example.launch(2, tmp_path, lose_after=12)
    assert lost[1][0] == -9
    assert lost[0][0] != 0
    # the broken connection is usually seen first, and `fit` says what was kept; on a busy machine JAX's own watch over
    # its processes may be quicker, and ends them with its own words
    told = lost[0][2]
    if "another process of this fit was lost after step" in told:
        assert "run.ckpt holds the fit after 14 steps: start all processes again" in told
    else:
        assert "This most likely indicates that another task died" in told
    assert not (tmp_path / "fit.pml").exists()

    ended = example.launch(2, tmp_path)
    assert [code for code, _, _ in ended] == [0, 0], [err[-1500:] for _, _, err in ended]
    assert "4 devices in 2 processes, 1001 units: max_steps after 60 steps" in ended[0][1]
    fit = pml.load(tmp_path / "fit.pml")

    halves = [example.share(i, 2) for i in range(2)]
    assert len(halves[0]) != len(halves[1])
    xs = jnp.asarray(np.concatenate(halves))
    np.testing.assert_allclose(
        fit.final_objective, pml.objective(fit.model, xs, jnp.ones(len(xs), "float32")), rtol=1e-6
    )
    # the single process begins where they began: units in the order in which the hosts hold them, padding and all
    padded = [np.concatenate([h, np.repeat(h[:1], 2 * -(-647 // 2) - len(h), axis=0)]) for h in halves]
    everything = np.concatenate(padded)
    chosen = np.unique(np.linspace(0, len(everything) - 1, 200).astype(int))
    model = pml.mixtures.gaussian_mixture(jr.key(0), everything[chosen], num_components=3)
    single = pml.fit(model, xs, max_steps=60, rtol=-1.0)
    np.testing.assert_allclose(single.objective, fit.objective, rtol=1e-5)

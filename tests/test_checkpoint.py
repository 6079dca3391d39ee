"""Long runs: a fit that stops and goes on ends as if it had never stopped."""

import os
import signal
import subprocess
import sys
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import probml_jax as pml


@pytest.fixture(scope="module")
def xs():
    return jnp.concatenate([jr.normal(jr.key(0), (60, 2)), 3 + jr.normal(jr.key(1), (40, 2))])


@pytest.fixture(scope="module")
def model(xs):
    return pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=3, covariance="diagonal", init="random")


OPTIMIZER = optax.adam(1e-2)
METHODS = {
    "em": pml.EM(),
    "minibatch": pml.Gradient(OPTIMIZER, 16, key=jr.key(3)),  # a key and moments are carried
    "online": pml.OnlineEM(16, key=jr.key(4)),
}


def same(a, b):
    for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_resumed_fit_ends_identically(model, xs, tmp_path, name):
    method, settings = METHODS[name], {"every": 4, "rtol": -1.0}
    whole = pml.fit(model, xs, method, max_steps=24, checkpoint=tmp_path / "whole", **settings)
    part = pml.fit(model, xs, method, max_steps=7, checkpoint=tmp_path / "part", **settings)
    assert int(part.num_steps) == 7
    resumed = pml.fit(model, xs, method, max_steps=24, checkpoint=tmp_path / "part", **settings)
    same(resumed, whole)
    # once more: it has ended, and comes back as it is
    same(pml.fit(model, xs, method, max_steps=24, checkpoint=tmp_path / "part", **settings), whole)


def test_a_checkpointed_fit_is_an_ordinary_fit(model, xs, tmp_path):
    plain = pml.fit(model, xs, max_steps=60)
    kept = pml.fit(model, xs, max_steps=60, checkpoint=tmp_path / "run")
    assert plain.status == kept.status
    np.testing.assert_allclose(kept.objective, plain.objective, rtol=1e-10)
    tighter = pml.fit(model, xs, max_steps=100, checkpoint=tmp_path / "run", rtol=1e-12)
    assert tighter.num_steps > kept.num_steps  # a converged fit goes on for a finer answer
    again = pml.fit(model, xs, max_steps=60, checkpoint=tmp_path / "run", resume=False)
    same(again, kept)


def test_a_fit_of_something_else_is_refused(model, xs, tmp_path):
    path = tmp_path / "run"
    pml.fit(model, xs, max_steps=5, checkpoint=path, rtol=-1.0)
    fit = lambda m=model, d=xs, method=pml.EM(), **kw: pml.fit(
        m, d, method, **{"max_steps": 9, "checkpoint": path, **kw}
    )
    two = pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=2, covariance="diagonal")
    with pytest.raises(ValueError, match=r"another fit.*probs.*float64\[3\] in the file, float64\[2\] here"):
        fit(two)
    full = pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=3)
    with pytest.raises(ValueError, match=r"normal:Normal in the file, .*MultivariateNormal here"):
        fit(full)
    with pytest.raises(ValueError, match=r"method.*EM in the file, .*OnlineEM here"):
        fit(method=METHODS["online"])
    with pytest.raises(ValueError, match="data"):
        fit(d=xs.at[3, 1].add(1e-9))
    with pytest.raises(ValueError, match="data"):
        fit(weights=jnp.ones(100).at[5].set(2.0))
    with pytest.raises(ValueError, match="has gone 5 steps; max_steps=3 is less"):
        fit(max_steps=3)
    with pytest.raises(ValueError, match="every must be at least 1"):
        fit(every=0)
    with pytest.raises(ValueError, match="there is no folder"):
        fit(checkpoint=tmp_path / "nowhere" / "run")
    with pytest.raises(ValueError, match="cannot work inside jit or vmap"):
        jax.jit(lambda d: fit(d=d).num_steps)(xs)
    pml.save(path, model)
    with pytest.raises(ValueError, match="holds a model; a checkpoint is wanted"):
        fit()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="damaged"):
        fit()


def test_data_are_recognized_in_another_order_and_on_other_devices(model, xs, tmp_path):
    weights = jnp.ones(100).at[:10].set(0.0)
    pml.fit(model, xs, weights=weights, max_steps=5, checkpoint=tmp_path / "run", rtol=-1.0)
    go_on = lambda data, **kw: pml.fit(model, data, max_steps=8, checkpoint=tmp_path / "run", rtol=-1.0, **kw)
    result = go_on(pml.sharding.place(xs[::-1], weights=weights[::-1]))
    np.testing.assert_allclose(
        result.objective, pml.fit(model, xs, weights=weights, max_steps=8, rtol=-1.0).objective, rtol=1e-10
    )


class _Slow(pml.AbstractMethod):
    """Takes EM's steps, and presses Ctrl-C after some of them."""

    after: int = eqx.field(static=True)
    monotone = True
    patience = 1

    def check(self, model):
        return None

    def init(self, model, data, weights):
        return jnp.zeros((), jnp.int32)

    def step(self, model, data, weights, state):
        press = lambda count: os.kill(os.getpid(), signal.SIGINT) if count == self.after else None
        jax.debug.callback(press, state, ordered=True)
        new, _, value = pml.EM().step(model, data, weights, None)
        return new, state + 1, value

    def optimality(self, model, data, weights):
        return pml.EM().optimality(model, data, weights)


def test_ctrl_c_keeps_the_last_good_model(model, xs, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    result = pml.fit(model, xs, _Slow(7), max_steps=10_000, rtol=-1.0, checkpoint=tmp_path / "run", every=1000)
    assert signal.getsignal(signal.SIGINT) is before
    assert pml.Status(int(result.status)) is pml.Status.interrupted
    steps = int(result.num_steps)
    assert 7 <= steps < 5000
    np.testing.assert_allclose(result.final_objective, pml.objective(result.model, xs, jnp.ones(100)), rtol=1e-10)
    with pytest.raises(RuntimeError, match="interrupted"):
        result.raise_if_failed()
    # what had been reached was written
    resumed = pml.fit(model, xs, _Slow(7), max_steps=steps, rtol=-1.0, checkpoint=tmp_path / "run")
    same(resumed.objective[: steps + 1], result.objective[: steps + 1])


def test_fits_outside_the_main_thread_leave_signals_alone(model, xs):
    results = []
    work = threading.Thread(target=lambda: results.append(pml.fit(model, xs, max_steps=3, progress=True)))
    work.start()
    work.join()
    assert int(results[0].num_steps) == 3


_KILLED = """
import os, signal, sys
import jax, jax.random as jr
import probml_jax as pml
from probml_jax import _checkpoint

write = _checkpoint.Checkpoint.write

def then_die(self, progress):
    write(self, progress)
    if sys.argv[2] == "killed" and int(progress.evaluations) > 8:
        os.kill(os.getpid(), signal.SIGKILL)

_checkpoint.Checkpoint.write = then_die
xs = jr.normal(jr.key(0), (50, 2))
model = pml.mixtures.gaussian_mixture(jr.key(1), xs, 2, "diagonal")
fit = pml.fit(model, xs, pml.Gradient(__import__("optax").adam(1e-2), 8, key=jr.key(2)), max_steps=20, rtol=-1.0,
              checkpoint=sys.argv[1], every=3, progress=True)
print(fit.objective.tobytes().hex() if hasattr(fit.objective, "tobytes") else bytes(memoryview(fit.objective)).hex())
"""


def test_a_killed_process_resumes_identically(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(_KILLED)

    def run(path, how):
        return subprocess.run([sys.executable, script, path, how], capture_output=True, text=True, check=False)

    whole = run(tmp_path / "whole", "lives")
    assert whole.returncode == 0, whole.stderr[-2000:]
    assert "objective=" in whole.stderr  # the progress bar
    assert run(tmp_path / "part", "killed").returncode == -signal.SIGKILL
    assert sorted(p.name for p in tmp_path.iterdir()) == ["part", "run.py", "whole"]
    resumed = run(tmp_path / "part", "lives")
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert resumed.stdout == whole.stdout

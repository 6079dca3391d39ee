"""The loop: statuses, the last good model, chunks, restarts, and gradients through its result."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import probml_jax as pml
from probml_jax.methods.em import pooled_e_step


@pytest.fixture(scope="module")
def xs():
    return jnp.concatenate([jr.normal(jr.key(0), (60, 2)), 6 + jr.normal(jr.key(1), (40, 2))])


@pytest.fixture(scope="module")
def model(xs):
    return pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=2, covariance="diagonal", init="random")


def test_the_trace_is_monotone_and_ends_at_num_steps(model, xs):
    result = pml.fit(model, xs, pml.EM(), max_steps=200)
    steps = int(result.num_steps)
    assert pml.Status(int(result.status)) is pml.Status.converged
    assert result.objective.shape == (201,)
    assert np.isfinite(result.objective[: steps + 1]).all()
    assert np.isnan(result.objective[steps + 1 :]).all()
    assert np.diff(result.objective[: steps + 1]).min() >= -1e-9
    np.testing.assert_allclose(result.final_objective, pml.objective(result.model, xs, jnp.ones(100)), rtol=1e-12)
    assert "converged" in result.summary()


def test_one_step_is_one_step(model, xs):
    result = pml.fit(model, xs, max_steps=1)
    stats, _ = model.e_step(xs, jnp.ones(100))
    by_hand = model.m_step(stats)
    assert result.status == pml.Status.max_steps
    assert result.num_steps == 1
    np.testing.assert_allclose(
        result.model.components.each.distribution.loc, by_hand.components.each.distribution.loc, rtol=1e-12
    )


class _Line(pml.AbstractModel):
    """A one-parameter model with a chosen objective, to drive the loop into each of its ends."""

    x: jax.Array = pml.param(pml.real)
    kind: str = eqx.field(static=True)

    def log_likelihood(self, data, weights):
        return {"hill": -((self.x - 3) ** 2), "cliff": jnp.where(self.x > 2, jnp.nan, self.x)}[self.kind]

    def log_prior(self):
        return jnp.zeros(())

    def validate(self, data):
        return None

    def degenerate(self):
        return jnp.array(False)


class _Walk(pml.AbstractMethod):
    """Adds one to the parameter at every step, whatever happens."""

    monotone = True
    patience = 1

    def check(self, model):
        return None

    def init(self, model, data, weights):
        return None

    def step(self, model, data, weights, state):
        return eqx.tree_at(lambda m: m.x, model, model.x + 1), state, pml.objective(model, data, weights)

    def optimality(self, model, data, weights):
        return eqx.filter(model, pml.trainable(model))


def test_a_fall_of_the_objective_keeps_the_model_before_it():
    result = pml.fit(_Line(0.0, "hill"), jnp.zeros(1), _Walk(), max_steps=10)
    assert result.status == pml.Status.objective_fell
    assert result.model.x == 3.0
    assert result.num_steps == 3
    np.testing.assert_allclose(result.objective[:4], [-9, -4, -1, 0])
    assert np.isnan(result.objective[4:]).all()
    with pytest.raises(RuntimeError, match="objective_fell"):
        result.raise_if_failed()


def test_a_nonfinite_objective_keeps_the_last_good_model():
    result = pml.fit(_Line(0.0, "cliff"), jnp.zeros(1), _Walk(), max_steps=10)
    assert result.status == pml.Status.nonfinite
    assert result.model.x == 2.0
    with pytest.raises(RuntimeError, match="nonfinite"):
        result.raise_if_failed()


def test_an_impossible_start_is_reported_at_once():
    xs = jnp.array([[0.0], [5.0]])
    parts = pml.Stacked(pml.ML(jax.vmap(pml.distributions.Poisson)(jnp.array([[0.0], [0.0]]))))
    model = pml.mixtures.Mixture(pml.ML(pml.distributions.Categorical([0.3, 0.7])), pml.Stacked(parts.each))
    model = eqx.tree_at(lambda m: m.components.each.distribution.rate, model, jnp.array([[0.0], [0.0]]))
    with pytest.raises(ValueError, match="identical"):
        pml.fit(model, xs)
    result = jax.jit(lambda m: pml.fit(m, xs))(model)
    assert result.status == pml.Status.nonfinite
    assert result.num_steps == 0
    assert result.objective[0] == -jnp.inf


def test_methods_agree_on_the_optimum(model, xs):
    em = pml.fit(model, xs, pml.EM(), max_steps=500, rtol=1e-14)
    lbfgs = pml.fit(model, xs, pml.LBFGS(), max_steps=200, rtol=1e-12)
    adam = pml.fit(model, xs, pml.Gradient(optax.adam(3e-2)), max_steps=2000)
    general = pml.fit(model, xs, pml.GeneralizedEM(optax.adam(3e-2)), max_steps=500)
    np.testing.assert_allclose(lbfgs.final_objective, em.final_objective, rtol=1e-8)
    np.testing.assert_allclose(adam.final_objective, em.final_objective, rtol=1e-4)  # a fixed step hovers
    np.testing.assert_allclose(general.final_objective, em.final_objective, rtol=1e-4)  # likewise
    assert adam.status == pml.Status.converged


def test_minibatch_gradients_climb(model, xs):
    method = pml.Gradient(optax.adam(3e-2), batch_size=32, key=jr.key(3))
    result = pml.fit(model, xs, method, max_steps=600, rtol=-1.0)
    before, after = pml.objective(model, xs, jnp.ones(100)), pml.objective(result.model, xs, jnp.ones(100))
    best = pml.fit(model, xs, max_steps=300).final_objective
    assert after > before
    assert abs(after - best) < 0.02 * abs(best)
    with pytest.raises(ValueError, match="key"):
        pml.Gradient(optax.adam(1e-2), batch_size=4)


def test_the_block_size_changes_nothing(model, xs):
    whole = pml.fit(model, xs, pml.EM(), max_steps=20, rtol=-1.0)
    for size in (1, 7, 100, 1000):
        blocks = pml.fit(model, xs, pml.EM(batch_size=size), max_steps=20, rtol=-1.0)
        np.testing.assert_allclose(blocks.objective, whole.objective, rtol=1e-10)


def test_blocks_bound_the_memory():
    """Working memory follows the block, not the data."""
    xs = jnp.zeros((20000, 4))
    model = pml.mixtures.gaussian_mixture(jr.key(0), jr.normal(jr.key(1), (100, 4)), num_components=8)
    size = lambda batch: (
        (
            jax.jit(lambda x: pooled_e_step(model, x, jnp.ones(20000), batch)).lower(xs).compile().memory_analysis()
        ).temp_size_in_bytes
    )
    assert size(500) < size(20000) / 8


def test_progress_gives_the_same_fit(model, xs, capsys):
    quiet = pml.fit(model, xs, max_steps=60)
    loud = pml.fit(model, xs, max_steps=60, progress=True)
    np.testing.assert_allclose(loud.objective, quiet.objective, rtol=1e-12)
    assert loud.num_steps == quiet.num_steps
    assert "objective" in capsys.readouterr().err
    with pytest.raises(ValueError, match="progress"):
        jax.jit(lambda w: pml.fit(model, xs, weights=w, progress=True))(jnp.ones(100))


def test_progress_without_tqdm(model, xs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    pml.fit(model, xs, max_steps=5, rtol=-1.0, progress=True)
    assert "step 5/5" in capsys.readouterr().err


def test_restarts_are_a_vmap_and_match_separate_fits(xs):
    build = lambda key: pml.mixtures.gaussian_mixture(key, xs, num_components=3)
    keys = jr.split(jr.key(4), 6)
    together = jax.jit(jax.vmap(lambda key: pml.fit(build(key), xs, max_steps=50)))(keys)
    alone = [pml.fit(build(key), xs, max_steps=50) for key in keys]
    np.testing.assert_allclose(together.final_objective, [a.final_objective for a in alone], rtol=1e-9)
    best = pml.best_of(together)
    assert best.final_objective == jnp.max(together.final_objective)
    assert best.model.num_components == 3


def test_best_of_never_picks_a_failed_fit():
    status = jnp.array([pml.Status.nonfinite, pml.Status.degenerate, pml.Status.converged, pml.Status.max_steps])
    objective = jnp.array([[9.0], [8.0], [1.0], [2.0]])
    fits = pml.Fit(jnp.arange(4.0), objective, jnp.zeros(4, int), status)
    assert pml.best_of(fits).model == 3.0
    assert pml.best_of(jax.tree_util.tree_map(lambda a: a[:2], fits)).model == 1.0


def test_weights_are_repetitions_in_the_fit(model, xs):
    counts = np.random.default_rng(0).integers(0, 3, 100)
    weighted = pml.fit(model, xs, weights=jnp.asarray(counts, float), max_steps=40, rtol=-1.0)
    repeated = pml.fit(model, jnp.repeat(xs, counts, axis=0), max_steps=40, rtol=-1.0)
    np.testing.assert_allclose(weighted.objective, repeated.objective, rtol=1e-10)


# ------------------------------------------------------------------ gradients through the fit


def _numeric(function, x, index, eps=1e-5):
    return (function(x.at[index].add(eps)) - function(x.at[index].add(-eps))) / (2 * eps)


@pytest.mark.parametrize("estimate", ["ml", pytest.param("bayes", marks=pytest.mark.thorough)])
def test_gradients_through_a_converged_em_in_weights_and_data(xs, estimate):
    start = pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=2, estimate=estimate)
    settings = {"max_steps": 3000, "rtol": 1e-16}
    read = lambda fit: jnp.sin(jnp.sum(fit.model.components.map(lambda leaf: leaf.point().loc)[0]))
    of_weights = jax.jit(lambda w: read(pml.fit(start, xs, weights=w, **settings)))
    of_data = jax.jit(lambda x: read(pml.fit(start, x, **settings)))
    ones = jnp.ones(100)
    slope = jax.grad(of_weights)(ones)
    for i in [int(jnp.argmax(jnp.abs(slope))), 7]:
        np.testing.assert_allclose(slope[i], _numeric(of_weights, ones, i), rtol=1e-5, atol=1e-9)
    if estimate == "bayes":
        return  # the data enter all three alike; two compilations are enough
    slope = jax.grad(of_data)(xs)
    for index in [(3, 0), (70, 1)]:
        np.testing.assert_allclose(slope[index], _numeric(of_data, xs, index), rtol=1e-5, atol=1e-9)


def test_gradients_through_a_converged_em_in_the_prior(xs):
    start = pml.mixtures.gaussian_mixture(jr.key(2), xs, 2, "diagonal", estimate="map")

    @jax.jit
    def covariance(strength):
        model = eqx.tree_at(lambda m: m.components.each.prior.strength, start, strength * jnp.ones((2, 2)))
        return pml.fit(model, xs, max_steps=3000, rtol=1e-16).model.components.each.distribution.scale[0, 0]

    slope = jax.grad(covariance)(jnp.array(2.0))
    numeric = (covariance(jnp.array(2.0 + 1e-4)) - covariance(jnp.array(2.0 - 1e-4))) / 2e-4
    np.testing.assert_allclose(slope, numeric, rtol=1e-5)


def test_gradient_of_the_final_objective_is_the_envelope(xs, model):
    value = lambda x: pml.fit(model, x, max_steps=2000, rtol=1e-16).final_objective
    slope = jax.grad(value)(xs)
    np.testing.assert_allclose(slope[5, 1], _numeric(value, xs, (5, 1)), rtol=1e-6)


@pytest.mark.thorough
def test_gradients_through_lbfgs(xs, model):
    read = lambda fit: fit.model.components.each.distribution.loc[0, 0]
    slope = jax.grad(lambda w: read(pml.fit(model, xs, pml.LBFGS(), weights=w, max_steps=300, rtol=1e-15)))(
        jnp.ones(100)
    )
    by_em = jax.grad(lambda w: read(pml.fit(model, xs, weights=w, max_steps=3000, rtol=1e-16)))(jnp.ones(100))
    np.testing.assert_allclose(slope, by_em, rtol=1e-4, atol=1e-7)  # L-BFGS stops at a gradient of about 1e-6


@pytest.mark.thorough
def test_gradients_through_a_vmapped_fit_in_blocks(xs, model):
    """Per-experiment gradients, with the E-step in blocks."""
    read = lambda w: pml.fit(model, xs, pml.EM(batch_size=30), weights=w, max_steps=1000, rtol=1e-16).model
    first = lambda w: read(w).components.each.distribution.loc[0, 0]
    many = jnp.stack([jnp.ones(100), jnp.linspace(0.5, 1.5, 100)])
    slopes = jax.vmap(jax.grad(first))(many)
    np.testing.assert_allclose(slopes[1], jax.grad(first)(many[1]), rtol=1e-6, atol=1e-10)


# ------------------------------------------------------------------ bad arguments


def test_bad_arguments_are_named(model, xs):
    with pytest.raises(TypeError, match="AbstractModel"):
        pml.fit(xs, xs)
    with pytest.raises(TypeError, match="method"):
        pml.fit(model, xs, "em")
    with pytest.raises(ValueError, match="max_steps"):
        pml.fit(model, xs, max_steps=0)
    with pytest.raises(TypeError, match="latent"):
        pml.fit(_Line(0.0, "hill"), jnp.zeros(1), pml.EM())
    with pytest.raises(ValueError, match="batch_size"):
        pml.EM(batch_size=0)
    with pytest.raises(ValueError, match="empty"):
        pml.fit(model, xs[:0])
    with pytest.raises(ValueError, match="infinite"):
        pml.fit(model, xs.at[0, 0].set(jnp.inf))
    with pytest.raises(ValueError, match=r"\(10, 3\)"):
        pml.fit(model, jnp.zeros((10, 3)))
    with pytest.raises(ValueError, match="shape"):
        pml.fit(model, jnp.zeros(10))
    with pytest.raises(ValueError, match=r"weights has shape \(3,\)"):
        pml.fit(model, xs, weights=jnp.ones(3))
    with pytest.raises(ValueError, match="non-negative"):
        pml.fit(model, xs, weights=-jnp.ones(100))
    with pytest.raises(ValueError, match="all zero"):
        pml.fit(model, xs, weights=jnp.zeros(100))
    with pytest.raises(TypeError, match="float32"):
        pml.fit(model, xs.astype(jnp.float32))


def test_float64_is_refused_when_it_would_be_narrowed():
    script = (
        "import numpy as np, jax, jax.random as jr, probml_jax as pml\n"
        "xs = np.random.default_rng(0).normal(size=(20, 2))\n"
        "try:\n    pml.mixtures.gaussian_mixture(jr.key(0), xs, num_components=2)\n"
        "except TypeError as error:\n    print('refused' if 'float64' in str(error) else error)\n"
        "assert 'optax' not in __import__('sys').modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "refused" in done.stdout

"""Many devices: the same fit, sums by one all-reduce, data that never travel. (Four virtual devices.)"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from helpers import MODELS

import probml_jax as pml
from probml_jax._constraint import split
from probml_jax.methods.drawing import draw
from probml_jax.methods.em import pooled_e_step
from probml_jax.methods.gradient import climb

# one model of each room at every run, all others in `make thorough`
QUICK = """
    gaussian_mixture_missing_full_map gaussian_mixture_tied_map gaussian_hmm linear_dynamical_system bayes_net
""".split()
every_model = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in MODELS]
)


def same(a, b, tol=1e-9):
    for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


@every_model
def test_a_fit_on_four_devices_is_the_fit_on_one(name):
    model, data = MODELS[name](jnp.dtype("float64"))
    n = jax.tree_util.tree_leaves(data)[0].shape[0] - 3  # not a multiple of the devices
    data = jax.tree_util.tree_map(lambda a: a[:n], data)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, n)
    placed = pml.sharding.place(data, weights=weights)
    assert placed.num_units == n
    assert len(jax.tree_util.tree_leaves(placed.parts)[0].sharding.device_set) == 4
    many = pml.fit(model, placed, max_steps=3, rtol=-1.0)
    one = pml.fit(model, data, weights=weights, max_steps=3, rtol=-1.0)
    np.testing.assert_allclose(many.objective, one.objective, rtol=1e-9)
    same(many.model, one.model, 1e-7)


@pytest.fixture(scope="module")
def clusters():
    xs = jnp.concatenate([jr.normal(jr.key(0), (60, 2)), 6 + jr.normal(jr.key(1), (41, 2))])
    return pml.mixtures.gaussian_mixture(jr.key(2), xs, 2, "diagonal", init="random"), xs


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_e_step_is_one_all_reduce_and_data_stay_where_they_are(clusters, dtype):
    model, _ = clusters
    cast = lambda tree: jax.tree_util.tree_map(lambda a: a.astype(dtype), tree)
    placed = pml.sharding.place(np.ones((40_000, 2), dtype))
    program = jax.jit(lambda m, d, w: m.m_step(pooled_e_step(m, d, w, 1000)[0]))
    text = program.lower(cast(model), placed, placed.weights).compile().as_text()
    assert len(re.findall(r" all-reduce(?:-start)?\(", text)) == 1
    assert not re.findall(r"all-gather|all-to-all|collective-permute", text)
    # each device sees a quarter of the units
    assert re.search(r"\[10000,2\]", text)
    assert not re.search(r"\[40000,2\]", text)


OPTIMIZER = optax.adam(1e-2)


@pytest.mark.parametrize(
    "method",
    [
        pml.LBFGS(),
        pml.Gradient(OPTIMIZER),
        pytest.param(pml.GeneralizedEM(OPTIMIZER), marks=pytest.mark.thorough),
        pytest.param(pml.Newton(), marks=pytest.mark.thorough),
    ],
    ids=lambda m: type(m).__name__,
)
def test_gradient_methods_too(clusters, method):
    model, xs = clusters
    if isinstance(method, pml.Newton):  # far out, its steps hang on the last digits of a curvature
        model = pml.fit(model, xs, max_steps=5).model
    many = pml.fit(model, pml.sharding.place(xs), method, max_steps=4, rtol=-1.0)
    one = pml.fit(model, xs, method, max_steps=4, rtol=-1.0)
    np.testing.assert_allclose(many.objective, one.objective, rtol=1e-8)


def test_each_device_draws_among_its_own_units(clusters):
    """The mean of many drawn gradients is the gradient of all units."""
    model, xs = clusters
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(xs))
    placed = pml.sharding.place(xs, weights=weights)
    gather = lambda m, d, w: m.e_step(d, w)[0][0]
    each = jax.jit(jax.vmap(lambda key: draw(gather, model, placed, placed.weights, key, 32)))
    drawn = each(jr.split(jr.key(0), 4000))
    whole = model.e_step(xs, jnp.asarray(weights))[0][0]
    error = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(np.mean(drawn, axis=0) - whole) < 5 * error)


@pytest.mark.thorough
def test_buckets_and_discriminative_models():
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(30, 6, 3)), rng.integers(0, 3, (30, 6))
    data = jnp.asarray(xs), jnp.asarray(rng.integers(2, 7, 30)), jnp.asarray(ys)
    buckets = pml.sequences.bucket(data, max_buckets=2)
    scores = pml.sequences.DenseScores(jnp.asarray(rng.normal(size=(3, 3))), jnp.zeros(3))
    crf = pml.sequences.LinearChainCRF(scores, num_labels=3)
    weights = rng.uniform(0.5, 2.0, 30)
    placed = pml.sharding.place(buckets, weights=weights)
    assert len(placed.parts) == 2
    value_and_slope = jax.jit(lambda d, w: climb(crf, split(crf)[0], d, w))
    same(value_and_slope(placed, placed.weights), value_and_slope(buckets, jnp.asarray(weights)))


def test_separable_data_are_noticed_on_all_devices_together():
    xs = np.random.default_rng(2).normal(size=(21, 2))
    fit = lambda ys: pml.fit(
        pml.classifiers.softmax_regression(2, 2), pml.sharding.place((xs, ys)), pml.LBFGS(), max_steps=20
    )
    assert fit((xs[:, 0] > 0).astype(int)).status == pml.Status.degenerate
    mixed = (xs[:, 0] > 0).astype(int)
    mixed[np.argmax(xs[:, 0])] = 0  # one unit, on one device
    assert fit(mixed).status != pml.Status.degenerate


def test_restarts_spread_over_devices(clusters):
    _, xs = clusters
    restart = lambda key: pml.fit(pml.mixtures.gaussian_mixture(key, xs, 3, "diagonal"), xs, max_steps=20, rtol=-1.0)
    keys = jr.split(jr.key(0), 6)  # two more than devices
    spread = pml.sharding.vmap(restart)(keys)
    together = jax.jit(jax.vmap(restart))(keys)
    np.testing.assert_allclose(spread.objective, together.objective, rtol=1e-8)
    assert len(spread.status) == 6
    assert pml.best_of(spread).status.shape == ()


@pytest.mark.thorough
def test_gradients_through_a_fit_of_placed_data(clusters):
    model, xs = clusters
    placed = pml.sharding.place(xs)

    def location(weights, data):
        given = {"weights": weights} if data is xs else {}
        data = data if data is xs else eqx.tree_at(lambda p: p.weights, data, weights)
        return pml.fit(model, data, max_steps=500, rtol=1e-13, **given).model.mean()[0]

    one = jax.grad(location)(jnp.ones(len(xs)), xs)
    many = jax.grad(location)(placed.weights, placed)
    np.testing.assert_allclose(many[: len(xs)], one, rtol=1e-5, atol=1e-9)


def test_head_is_taken_from_all_over(clusters):
    _, xs = clusters
    few = pml.sharding.place(xs).head(10)
    assert isinstance(few, np.ndarray)
    assert few.shape == (10, 2)
    assert all(any(np.array_equal(row, x) for x in np.asarray(xs)) for row in few)
    assert few[-1, 0] > 3 > few[0, 0] or few[-2, 0] > 3 > few[0, 0]  # both ends; the last may be padding


def test_bad_input(clusters):
    model, xs = clusters
    placed = pml.sharding.place(xs)
    with pytest.raises(ValueError, match=r"weights belong to pml\.sharding\.place"):
        pml.fit(model, placed, weights=np.ones(len(xs)))
    with pytest.raises(ValueError, match="placed already"):
        pml.sharding.place(placed)
    with pytest.raises(TypeError, match=r"mesh must come from pml.sharding.mesh\(\); got int"):
        pml.sharding.place(xs, 4)
    with pytest.raises(ValueError, match="one axis 'units'"):
        pml.sharding.place(xs, jax.make_mesh((4,), ("x",)))
    with pytest.raises(ValueError, match="infinite"):
        pml.sharding.place(np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match="empty"):
        pml.sharding.place(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="weights are all zero"):
        pml.sharding.place(xs, weights=np.zeros(len(xs)))
    with pytest.raises(ValueError, match="different numbers of units"):
        pml.sharding.place((xs, xs[1:]))
    with pytest.raises(TypeError, match="data is float32 but the model is float64"):
        pml.fit(model, pml.sharding.place(np.asarray(xs, np.float32)))
    with pytest.raises(ValueError, match="devices is empty"):
        pml.sharding.mesh([])
    with pytest.raises(ValueError, match="wanted"):
        pml.fit(model, pml.sharding.place(xs[:, :1]))

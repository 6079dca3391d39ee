"""Gaussian processes: dense formulas, conditioning in any order, the solvers against each other, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads

import probml_jax as pml
from probml_jax.gaussian_processes import GaussianProcess, SparseGaussianProcess, kernels, means, sample_function
from probml_jax.gaussian_processes import markov as markov_form

k = kernels


def _data(n=25, d=2, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, d))
    return jnp.asarray(x, dtype), jnp.asarray(np.sin(5 * x.sum(1)) + 0.1 * rng.normal(size=n), dtype)


class Dot(k.AbstractPairKernel):
    """A kernel as users would write one."""

    def __call__(self, x, z):
        return jnp.sum(x * z) + 1


KERNELS = {
    "rbf": lambda: k.RBF(0.4),
    "ard": lambda: 1.7 * k.RBF(jnp.array([0.4, 0.9])),
    "matern12": lambda: k.Matern12(0.5),
    "matern32": lambda: k.Matern32(jnp.array([0.4, 0.9])),
    "matern52": lambda: k.Matern52(0.5),
    "rational_quadratic": lambda: k.RationalQuadratic(0.5, 1.3),
    "periodic": lambda: k.ActiveDims(k.Periodic(0.8, 0.6), [0]),
    "linear": lambda: k.Linear(jnp.array([0.5, 2.0])),
    "polynomial": lambda: k.Polynomial(3, 0.5),
    "constant": lambda: k.Constant(2.0),
    "white": lambda: k.White(0.3),
    "composed": lambda: 0.5 * k.Matern52(0.5) * (k.Linear() + 1.0) + k.White(0.1) + k.Frozen(k.RBF(0.3)),
    "warped": lambda: k.Warped(k.RBF(1.0), eqx.nn.MLP(2, 3, 8, 1, key=jr.key(0), dtype=jnp.float64)),
    "own": lambda: Dot(),
}


def _mostly_thorough(names, quick):
    """One of each kind per run, the others in `make thorough`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.thorough) for name in names]


every_kernel = pytest.mark.parametrize(
    "name", _mostly_thorough(KERNELS, ("ard", "matern52", "periodic", "composed", "own"))
)


# ---------------------------------------------------------------------------------------------- kernels


@every_kernel
def test_matrices_are_the_kernel_on_pairs(name):
    kernel, (x, _) = KERNELS[name](), _data(9)
    z = _data(6, seed=1)[0]
    pairs = lambda a, b: np.array([[float(kernel(p, q)) for q in b] for p in a])
    np.testing.assert_allclose(kernel.cross(x, z), pairs(x, z), rtol=1e-12, atol=1e-14)
    gram = np.asarray(kernel.gram(x))
    np.testing.assert_allclose(gram, pairs(x, x), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(gram), rtol=1e-12)
    assert np.linalg.eigvalsh(gram).min() > -1e-10


@every_kernel
def test_gradients_at_coincident_inputs(name):
    kernel, (x, _) = KERNELS[name](), _data(4)
    x = jnp.concatenate([x, x[:2]])
    slopes = eqx.filter_grad(lambda both: jnp.sum(jnp.sin(both[0].gram(both[1]))))((kernel, x))
    for leaf in jax.tree_util.tree_leaves(slopes):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize("kernel", [k.Matern32, k.Matern52, k.RBF])
def test_second_derivatives_at_coincident_inputs(kernel):
    """Cov(f'(x), f'(x)) = -k''(0): the derivative process of a Matern exists and has this variance."""
    at = jnp.array([0.3])
    mixed = jax.jacfwd(jax.jacrev(kernel(0.7), argnums=0), argnums=1)(at, at)[0, 0]
    wanted = {k.Matern32: 3.0, k.Matern52: 5 / 3, k.RBF: 1.0}[kernel] / 0.7**2
    np.testing.assert_allclose(mixed, wanted, rtol=1e-10)


def test_many_dimensions_take_matrix_products():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(12, 30)))
    gram = k.RBF(4.0).gram(x)
    wanted = np.exp(-0.5 * ((np.asarray(x)[:, None] - np.asarray(x)[None]) ** 2).sum(-1) / 16)
    np.testing.assert_allclose(gram, wanted, rtol=1e-12)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(jnp.diagonal(gram), 1)


def test_distances_far_from_the_origin_in_float32():
    x = jnp.asarray(1000 + np.arange(5) / 8, jnp.float32)[:, None]
    exact = k.RBF(0.2).gram(x.astype(jnp.float64))
    np.testing.assert_allclose(k.RBF(jnp.float32(0.2)).gram(x), exact, rtol=1e-5)


# ---------------------------------------------------------------------------------------------- regression


def _dense(kernel, x, y, noise, new, mean=0.0):
    gram = np.asarray(kernel.gram(x)) + np.diag(noise)
    cross = np.asarray(kernel.cross(new, x))
    value = -0.5 * ((y - mean) @ np.linalg.solve(gram, y - mean) + np.linalg.slogdet(2 * np.pi * gram)[1])
    moved = mean + cross @ np.linalg.solve(gram, y - mean)
    return moved, np.asarray(kernel.gram(new)) - cross @ np.linalg.solve(gram, cross.T), value


@every_kernel
def test_regression_is_the_dense_gaussian(name):
    kernel, (x, y), new = KERNELS[name](), _data(), _data(7, seed=3)[0]
    gp = GaussianProcess(kernel, noise=0.1, mean_function=0.5)
    mean, covariance, value = _dense(kernel, x, np.asarray(y), np.full(25, 0.1), new, 0.5)
    post = gp.condition(x, y)
    np.testing.assert_allclose(post.mean(new), mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(post.covariance(new), covariance, atol=1e-10)
    np.testing.assert_allclose(post.variance(new), np.diag(covariance), atol=1e-10)
    np.testing.assert_allclose(gp.log_prob((x, y)), value, rtol=1e-10)
    assert float(post.jitter) == 0


def test_conditioning_twice_is_once_and_evidence_is_a_chain():
    (x, y), new = _data(), _data(7, seed=3)[0]
    gp = GaussianProcess(KERNELS["ard"](), noise=0.05, mean_function=means.Linear(jnp.array([1.0, -1.0])))
    once, first = gp.condition(x, y), gp.condition(x[:9], y[:9])
    twice = first.condition(x[9:], y[9:])
    np.testing.assert_allclose(twice.mean(new), once.mean(new), atol=1e-10)
    np.testing.assert_allclose(twice.covariance(new), once.covariance(new), atol=1e-10)
    chain = gp.log_prob((x[:9], y[:9])) + first.log_prob((x[9:], y[9:]))
    np.testing.assert_allclose(chain, gp.log_prob((x, y)), rtol=1e-10)


def test_noise_for_each_observation_and_none_at_all():
    (x, y), new = _data(12), _data(4, seed=3)[0]
    noise = np.linspace(0.01, 0.5, 12)
    mean, covariance, _ = _dense(k.Matern32(0.5), x, np.asarray(y), noise, new)
    post = GaussianProcess(k.Matern32(0.5)).condition(x, y, noise)
    np.testing.assert_allclose(post.mean(new), mean, atol=1e-10)
    np.testing.assert_allclose(post.covariance(new), covariance, atol=1e-10)
    through = GaussianProcess(k.Matern32(0.5)).condition(x, y)
    np.testing.assert_allclose(through.mean(x), y, atol=1e-8)


@pytest.mark.parametrize("solver", _mostly_thorough(["cholesky", "state_space"], ("cholesky",)))
def test_missing_observations_are_not_there(solver):
    x, y = _data(20, 1)
    gp = GaussianProcess(k.Matern32(0.3) + k.White(0.05), noise=0.1, solver=solver)
    holes = y.at[jnp.array([2, 7, 11])].set(jnp.nan)
    seen = ~jnp.isnan(holes)
    score = lambda gp, x, y: gp.log_prob((x, y))
    for some, whole in zip(
        jax.tree_util.tree_leaves(jax.value_and_grad(score)(gp, x, holes)),
        jax.tree_util.tree_leaves(jax.value_and_grad(score)(gp, x[seen], y[seen])),
        strict=True,
    ):
        np.testing.assert_allclose(some, whole, rtol=1e-9)
    new = jnp.linspace(-0.2, 1.2, 6)
    np.testing.assert_allclose(gp.condition(x, holes).mean(new), gp.condition(x[seen], y[seen]).mean(new), atol=1e-10)
    ragged = jax.jit(jax.vmap(lambda y: gp.condition(x, y).variance(new)))(jnp.stack([y, holes]))
    np.testing.assert_allclose(ragged[0], gp.condition(x, y).variance(new), atol=1e-10)
    np.testing.assert_allclose(ragged[1], gp.condition(x[seen], y[seen]).variance(new), atol=1e-10)


@pytest.mark.parametrize("kind", ["exact", "state_space", "sparse"])
def test_weights_are_repetitions(kind):
    x, y = _data(8, 1)
    kernel = k.Matern52(0.3)
    models = {
        "exact": GaussianProcess(kernel, noise=0.1, solver="cholesky"),
        "state_space": GaussianProcess(kernel, noise=0.1, solver="state_space"),
        "sparse": SparseGaussianProcess(kernel, x[:4], noise=0.1),
    }
    counts = np.array([1, 3, 0, 2, 1, 1, 5, 1])
    again = models[kind].log_prob((jnp.repeat(x, counts, axis=0), jnp.repeat(y, counts)))
    np.testing.assert_allclose(models[kind].log_likelihood((x, y), jnp.asarray(counts, x.dtype)), again, rtol=1e-10)


@pytest.mark.parametrize("kind", ["cholesky", "state_space", "sparse"])
def test_leave_one_out_is_leaving_one_out(kind):
    x, y = _data(9, 1)
    kernel = k.Matern32(0.3)
    if kind == "sparse":  # inducing points at the inputs: the exact process
        post = SparseGaussianProcess(kernel, x, noise=0.1).condition(x, y)
    else:
        post = GaussianProcess(kernel, noise=0.1, solver=kind).condition(x, y)
    found = post.leave_one_out()
    gp = GaussianProcess(kernel, noise=0.1, solver="cholesky")
    for i in (0, 4, 8):
        rest = gp.condition(jnp.delete(x, i, axis=0), jnp.delete(y, i))
        np.testing.assert_allclose(found.mean[i], rest.mean(x[i : i + 1])[0], atol=1e-8)
        np.testing.assert_allclose(found.variance[i], rest.variance(x[i : i + 1])[0] + 0.1, atol=1e-8)
        np.testing.assert_allclose(found.log_prob[i], rest.log_prob((x[i : i + 1], y[i : i + 1])), atol=1e-8)


def test_samples_have_the_moments():
    (x, y), new = _data(), _data(4, seed=3)[0]
    post = GaussianProcess(KERNELS["ard"](), noise=0.1).condition(x, y)
    draws = jax.vmap(lambda key: post.sample(key, new))(jr.split(jr.key(0), 20_000))
    # 20,000 draws: four standard errors
    np.testing.assert_allclose(draws.mean(0), post.mean(new), atol=4 * float(jnp.sqrt(post.variance(new).max() / 2e4)))
    np.testing.assert_allclose(jnp.cov(draws.T), post.covariance(new), atol=4 * float(post.variance(new).max()) * 0.01)


# ---------------------------------------------------------------------------------------------- learning


def test_gradient_of_the_evidence():
    x, y = _data(12)

    def score(scale, variance, noise):
        return GaussianProcess(variance * k.RBF(scale), noise=noise).log_prob((x, y))

    args = jnp.array([0.4, 0.8]), jnp.array(1.3), jnp.array(0.1)
    check_grads(score, args, order=2, modes=["rev"], rtol=1e-5)
    check_grads(score, args, order=1, modes=["fwd"], rtol=1e-5)  # what finite differences resolve here


@pytest.mark.parametrize("size", _mostly_thorough([100, 300, 700], (100, 300)))
def test_gradient_by_blocks_is_that_of_the_library(size):
    """Above 256 rows the inverse is built from halves."""
    from probml_jax.inference.evidence import log_density

    rng = np.random.default_rng(0)
    root = rng.normal(size=(size, size)) / np.sqrt(size)
    covariance, residual = jnp.asarray(root @ root.T + 0.5 * np.eye(size)), jnp.asarray(rng.normal(size=size))
    plain = lambda c, r: jax.scipy.stats.multivariate_normal.logpdf(r, jnp.zeros_like(r), c)
    value, slope = jax.value_and_grad(log_density, argnums=(0, 1))(covariance, residual)
    np.testing.assert_allclose(value, plain(covariance, residual), rtol=1e-10)
    inverse = np.linalg.inv(covariance)
    weights = inverse @ residual
    np.testing.assert_allclose(slope[0], 0.5 * (np.outer(weights, weights) - inverse), atol=1e-9)
    np.testing.assert_allclose(slope[1], -weights, atol=1e-9)


def test_fit_restarts_and_prior():
    x, y = _data(30, 1)
    gp = GaussianProcess(1.0 * k.RBF(0.3), noise=0.1)
    result = pml.fit(gp, (x, y), pml.LBFGS(), rtol=1e-12).raise_if_failed()
    slope = jax.grad(lambda m: m.log_prob((x, y)))(result.model)
    for leaf in jax.tree_util.tree_leaves(eqx.filter(slope, pml.trainable(gp))):
        assert abs(float(leaf)) < 1e-3
    restart = lambda key: pml.fit(pml.perturbed(key, gp), (x, y), pml.LBFGS())
    many = jax.vmap(restart)(jr.split(jr.key(0), 4))
    best = pml.best_of(many)
    assert float(best.final_objective) >= float(result.final_objective) - 1e-6
    prior = lambda g: pml.distributions.Gamma(2.0, 100.0).log_prob(g.noise)
    held = pml.fit(GaussianProcess(gp.kernel, 0.1, prior=prior), (x, y), pml.LBFGS()).model
    assert float(held.noise) > 0
    assert float(held.noise) != pytest.approx(float(result.model.noise), rel=1e-3)


def test_noise_free_stays_noise_free_and_frozen_stays():
    x, y = _data(10, 1)
    gp = GaussianProcess(k.Frozen(k.Constant(2.0)) + k.Matern32(0.3))
    fitted = pml.fit(gp, (x, y), pml.LBFGS(), max_steps=5).model
    assert float(fitted.noise) == 0
    assert float(fitted.kernel.first.kernel.variance) == 2
    assert float(fitted.kernel.second.length_scale) != pytest.approx(0.3, rel=1e-3)


def test_networks_train_in_kernels_and_means():
    x, y = _data(15, 1)
    net = eqx.nn.MLP(1, 2, 8, 1, key=jr.key(0), dtype=jnp.float64)
    mean = eqx.nn.MLP(1, "scalar", 4, 1, key=jr.key(1), dtype=jnp.float64)
    gp = GaussianProcess(k.Warped(k.RBF(1.0), net), noise=0.1, mean_function=mean)
    result = pml.fit(gp, (x, y), pml.LBFGS(), max_steps=10)
    assert float(result.final_objective) > float(result.objective[0])
    moved = lambda a, b: not np.allclose(a.layers[0].weight, b.layers[0].weight)
    assert moved(result.model.kernel.network, net)
    assert moved(result.model.mean_function, mean)


# ---------------------------------------------------------------------------------------------- float32


def test_float32_where_conditioning_is_poor():
    x = np.linspace(0, 1, 200)
    y = np.sin(6 * x) + 0.03 * np.random.default_rng(0).normal(size=200)
    wide = GaussianProcess(k.RBF(1.0), noise=1e-3)
    narrow = GaussianProcess(k.RBF(jnp.float32(1.0)), noise=jnp.float32(1e-3))
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    value, slope = jax.value_and_grad(lambda g: g.log_prob(data))(narrow)
    np.testing.assert_allclose(value, wide.log_prob((x, y)), rtol=0.01)  # the figure: condition number 2e5
    assert value.dtype == jnp.float32
    assert all(np.isfinite(leaf) for leaf in jax.tree_util.tree_leaves(slope))
    post = narrow.condition(*data)
    np.testing.assert_allclose(post.mean(data[0]), wide.condition(x, y).mean(x), atol=0.01)
    assert float(post.jitter) >= 0


def test_equal_inputs_without_noise_are_helped_and_told():
    x, y = jnp.array([0.1, 0.5, 0.5, 0.9]), jnp.array([1.0, 2.0, 2.0, 0.0])
    post = GaussianProcess(k.RBF(0.3), solver="cholesky").condition(x, y)
    assert float(post.jitter) > 0
    np.testing.assert_allclose(post.mean(x), y, atol=1e-4)


# ---------------------------------------------------------------------------------------------- state space


MARKOV = {
    "matern12": lambda: k.Matern12(0.3),
    "matern32": lambda: 2.0 * k.Matern32(0.3),
    "matern52": lambda: k.Matern52(0.2),
    "sum": lambda: k.Matern52(0.2) + 0.5 * k.Matern12(1.0) + k.White(0.1),
    "product": lambda: k.Matern32(0.3) * k.Matern12(0.4) + k.Constant(2.0),
    "frozen": lambda: k.Frozen(k.Matern32(0.1)) + k.Constant(0.5),
}


@pytest.mark.parametrize("name", _mostly_thorough(MARKOV, ("sum",)))
def test_state_space_is_the_dense_process(name):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=40), rng.normal(size=40)
    y[3], x[5] = np.nan, x[6]
    new = np.concatenate([rng.uniform(-0.3, 1.3, size=9), x[:2], [x.min(), x.max()]])
    both = [GaussianProcess(MARKOV[name](), noise=0.05, solver=s) for s in ("cholesky", "state_space")]
    score = jax.value_and_grad(lambda gp: gp.log_prob((x, y)))
    for a, b in zip(*[jax.tree_util.tree_leaves(score(gp)) for gp in both], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    dense, quick = [gp.condition(x, y) for gp in both]
    for ask in ("mean", "variance", "covariance"):
        np.testing.assert_allclose(getattr(quick, ask)(new), getattr(dense, ask)(new), atol=1e-8)
    np.testing.assert_allclose(quick.leave_one_out().log_prob, dense.leave_one_out().log_prob, atol=1e-8)
    more = [p.condition(new[:3], np.ones(3)).mean(new) for p in (dense, quick)]
    np.testing.assert_allclose(*more, atol=1e-8)


@pytest.mark.thorough
def test_recursions_in_parallel_are_those_in_sequence():
    x, y = _data(60, 1)
    y, new = y.at[4].set(jnp.nan), jnp.linspace(-0.2, 1.2, 7)
    kernel = 1.3 * k.Matern32(0.3)
    one, all_at_once = [GaussianProcess(kernel, noise=0.05, solver="state_space", parallel=p) for p in (False, True)]
    score = jax.value_and_grad(lambda gp: gp.log_prob((x, y)))
    for a, b in zip(*[jax.tree_util.tree_leaves(score(gp)) for gp in (one, all_at_once)], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    posts = [gp.condition(x, y) for gp in (one, all_at_once)]
    np.testing.assert_allclose(*[p.mean(new) for p in posts], atol=1e-10)
    np.testing.assert_allclose(*[p.variance(new) for p in posts], atol=1e-10)


@pytest.mark.thorough
def test_periodic_kernels_are_close_in_state_space():
    """Seven harmonics of a smooth periodic kernel leave out 1e-7 of its variance."""
    x, y = np.linspace(0, 2, 30), np.sin(np.linspace(0, 12, 30))
    kernel = k.Periodic(1.0, 0.7) * k.Matern32(2.0)
    values = [GaussianProcess(kernel, noise=0.1, solver=s).log_prob((x, y)) for s in ("cholesky", "state_space")]
    np.testing.assert_allclose(*values, atol=1e-5)
    assert not markov_form(kernel).exact


def test_auto_takes_the_recursion_only_where_it_is_exact():
    from probml_jax.gaussian_processes.evidence import Factorized
    from probml_jax.gaussian_processes.recursion import Recursive

    x, y = np.linspace(0, 1, 300), np.zeros(300)
    kind = lambda kernel, x: type(GaussianProcess(kernel, noise=0.1).condition(x, y[: len(x)]).evidence)
    assert kind(k.Matern32(0.1), x) is Recursive
    assert kind(k.Matern32(0.1), x[:20]) is Factorized
    assert kind(k.RBF(0.1), x) is Factorized
    assert kind(k.Matern32(0.1) * k.Periodic(1.0, 0.3), x) is Factorized
    assert kind(k.Matern32(0.1), np.stack([x, x], axis=1)) is Factorized


def test_steps_much_shorter_than_the_length_scale_in_float32():
    """Process noise over a short step is of order u^5: a difference of stationary moments would be rounding alone."""
    short = markov_form(k.Matern52(jnp.float32(1.0))).move(jnp.float32([1e-3]))[1][:, :, 0]
    exact = markov_form(k.Matern52(jnp.float64(1.0))).move(jnp.float64([np.float32(1e-3)]))[1][:, :, 0]
    np.testing.assert_allclose(short, exact, rtol=1e-5)


@pytest.mark.parametrize("kernel", [k.Matern12, k.Matern32, k.Matern52])
@pytest.mark.parametrize("longest", [0.2, 30.0])
def test_two_steps_of_the_state_are_one(kernel, longest):
    """The noise to its last digits, however short the step; with and without long steps among them."""
    form = markov_form(kernel(jnp.float64(1.0)))
    u = jnp.asarray(np.append(np.geomspace(1e-9, longest / 2, 60), longest))
    (once, noise), (twice, both) = form.move(u), form.move(2 * u)
    np.testing.assert_allclose(jnp.einsum("ijn,jkn->ikn", once, once), twice, rtol=1e-13, atol=1e-14)
    moved = lambda p: jnp.einsum("ijn,jkn,lkn->iln", once, p, once)
    scale = jnp.sqrt(jnp.einsum("iin->in", both))
    correlation = lambda spread: spread / (scale[:, None] * scale[None])
    np.testing.assert_allclose(correlation(moved(noise) + noise), correlation(both), rtol=0, atol=1e-13)
    at_rest = jnp.broadcast_to(form.stationary[:, :, None], noise.shape)
    np.testing.assert_allclose(moved(at_rest) + noise, at_rest, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------- sparse, pathwise


def test_the_sparse_bound():
    x, y = _data(30, 1)
    kernel = k.Matern32(0.3)
    exact = GaussianProcess(kernel, noise=0.05)
    value = exact.log_prob((x, y))
    whole = SparseGaussianProcess(kernel, x, noise=0.05)
    np.testing.assert_allclose(whole.log_prob((x, y)), value, rtol=1e-9)
    new = jnp.linspace(-0.1, 1.1, 5)
    np.testing.assert_allclose(whole.condition(x, y).mean(new), exact.condition(x, y).mean(new), atol=1e-9)
    np.testing.assert_allclose(whole.condition(x, y).covariance(new), exact.condition(x, y).covariance(new), atol=1e-9)
    few = SparseGaussianProcess(kernel, x[::6], noise=0.05)
    bounds = [float(SparseGaussianProcess(kernel, x[::step], noise=0.05).log_prob((x, y))) for step in (10, 5, 2)]
    assert bounds == sorted(bounds)
    assert bounds[-1] < float(value)
    moved = pml.fit(few, (x, y), pml.LBFGS(), max_steps=30)
    assert float(moved.final_objective) > float(few.log_prob((x, y)))
    assert not np.allclose(moved.model.inducing, few.inducing)
    part = few.condition(x[:10], y[:10]).condition(x[10:], y[10:])
    np.testing.assert_allclose(part.mean(new), few.condition(x, y).mean(new), atol=1e-10)


@pytest.mark.parametrize("name", _mostly_thorough(["rbf", "sum", "periodic", "white", "rational"], ("sum", "white")))
def test_functions_drawn_whole_have_the_moments(name):
    x, y = _data(10, 1)
    kernel = {
        "rbf": k.RBF(0.3),
        "sum": 2.0 * k.Matern52(0.4) + k.Linear() + k.Constant(0.5),
        "periodic": k.Matern32(0.5) * k.Periodic(1.0, 0.5),
        "white": k.Matern12(0.4) + k.White(0.2),
        "rational": k.Warped(k.RationalQuadratic(0.3, 2.0), lambda x: 2 * x),
    }[name]
    post = GaussianProcess(kernel, noise=0.1, solver="cholesky").condition(x, y)
    new = jnp.array([0.2, 0.5, 1.3])
    draws = jax.jit(jax.vmap(lambda key: sample_function(key, post, 256)(new)))(jr.split(jr.key(0), 2000))
    variance = post.variance(new) - (0.2 if name == "white" else 0)
    # 2,000 draws of new features each: five standard errors of a mean and of a variance
    np.testing.assert_allclose(draws.mean(0), post.mean(new), atol=5 * float(jnp.sqrt(variance.max() / 2000)))
    np.testing.assert_allclose(draws.var(0), variance, rtol=5 * float(np.sqrt(2 / 2000)), atol=1e-3)


# ---------------------------------------------------------------------------------------------- bad input


def test_bad_input_is_named():
    x, y = jnp.zeros((4, 1)) + jnp.arange(4.0)[:, None], jnp.ones(4)
    gp = GaussianProcess(k.RBF(1.0), noise=0.1)
    cases = [
        (lambda: GaussianProcess(k.RBF(1.0), noise=-0.1), "noise must be a variance"),
        (lambda: GaussianProcess(k.RBF(1.0), solver="lu"), "solver must be one of"),
        (lambda: k.RBF(-1.0), "length_scale must be positive"),
        (lambda: k.Polynomial(0), "degree must be at least 1"),
        (lambda: gp.condition(x, y[:3]), "x has 4 inputs and y 3"),
        (lambda: gp.condition(x, y[:, None]), "one number per input"),
        (lambda: gp.condition(x[:0], y[:0]), "y is empty"),
        (lambda: gp.condition(jnp.float64(1.0), y), "x is a single number"),
        (lambda: gp.condition(x, y, jnp.ones(3)), "noise has shape"),
        (lambda: gp.condition(x, y, -1.0), "noise must be variances"),
        (lambda: gp.leave_one_out(), "condition the process first"),
        (lambda: pml.fit(gp.condition(x, y), (x, y), pml.LBFGS()), "before `condition`"),
        (lambda: pml.fit(gp, y, pml.LBFGS()), "pair"),
        (lambda: pml.fit(gp, (x.at[0].set(jnp.nan), y), pml.LBFGS()), "x has NaN"),
        (lambda: GaussianProcess(k.RBF(1.0), 0.1, solver="state_space").log_prob((x, y)), "state_space"),
        (lambda: SparseGaussianProcess(k.RBF(1.0), x, noise=0.0), "noise must be positive"),
        (lambda: sample_function(jr.key(0), GaussianProcess(k.Polynomial(2))), "no random features"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="latent model"):
        pml.fit(gp, (x, y), pml.EM())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gp, x, y: GaussianProcess(k.RBF(jnp.ones(3))).condition(x, y), r"x has shape \(25, 2\); length_scale"),
        (lambda gp, x, y: k.ActiveDims(k.RBF(1.0), (5,)).gram(x), r"dims are \(5,\); the input has 2"),
        (lambda gp, x, y: k.Periodic(jnp.ones(2), 1.0), r"length_scale has shape \(2,\)"),
        (lambda gp, x, y: gp.condition(x.at[0, 0].set(jnp.nan), y), "x has NaN entries"),
        (lambda gp, x, y: gp.condition(x, y.at[0].set(jnp.inf)), "y has infinite entries"),
    ],
)
def test_inputs_that_do_not_fit_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(GaussianProcess(k.RBF(1.0), noise=0.1), *_data())

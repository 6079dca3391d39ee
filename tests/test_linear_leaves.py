"""Linear conditional families: masked least squares, uncertain pairs, rows without noise, what gradients may move."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
import scipy.stats

import probml_jax as pml
from probml_jax import distributions as pd
from probml_jax._constraint import split
from probml_jax._estimate import with_constants_of

M, P, N = 3, 2, 7
_rng = np.random.default_rng(0)
A, B = _rng.normal(size=(M, P)), _rng.normal(size=M)
X, Y = _rng.normal(size=(N, P)) + 1, _rng.normal(size=(N, M)) * 2
W = _rng.uniform(0.5, 2.0, N)
G = np.eye(M) + 0.4 * _rng.normal(size=(M, M))
SIGMA = G @ G.T
SCALE = np.array([0.5, 1.0, 2.0])
FREE = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]], bool)

LEAVES = {
    "full": lambda f: pd.LinearGaussian(f(A), f(B), f(SIGMA)),
    "diagonal": lambda f: pd.LinearNormal(f(A), f(B), f(SCALE)),
    "diagonal_masked": lambda f: pd.LinearNormal(f(A), f(B), f(SCALE), free=FREE, floor=f(1e-3)),
    "spherical": lambda f: pd.LinearSphericalNormal(f(A), f(B), f(1.3)),
    "spherical_masked": lambda f: pd.LinearSphericalNormal(f(A), f(B), f(1.3), free=FREE),
    "directions": lambda f: pd.LinearSphericalNormal(f(A), f(B), f(1.3), directions=f(G), floor=f(1e-3)),
    "directions_known": lambda f: pd.LinearSphericalNormal(
        f(A), f(B), f(1.3), free=np.zeros((M, P + 1), bool), directions=f(G)
    ),
}
# one of each kind of noise at every run, the others in `make thorough`
QUICK = ("full", "diagonal_masked", "spherical")
each = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in LEAVES]
)
wide = functools.partial(jnp.asarray, dtype=jnp.float64)
make = lambda name, dtype="float64": LEAVES[name](functools.partial(jnp.asarray, dtype=dtype))
refit = eqx.filter_jit(lambda leaf, xs, weights: leaf.refit(leaf.statistics(xs, weights)))
agree = lambda a, b, tol=1e-10: jax.tree_util.tree_map(
    lambda u, v: np.testing.assert_allclose(u, v, rtol=tol, atol=tol), a, b
)


def line(leaf):
    return np.column_stack([leaf.matrix, leaf.offset])


@each
def test_log_prob_is_scipys_with_and_without_holes(name):
    leaf = make(name)
    mean, covariance = A @ X[0] + B, np.asarray(leaf.covariance)
    want = scipy.stats.multivariate_normal(mean, covariance).logpdf(Y[0])
    np.testing.assert_allclose(leaf.log_prob((wide(X[0]), wide(Y[0]))), want, rtol=1e-12)
    np.testing.assert_allclose(leaf.given(wide(X[0])).log_prob(wide(Y[0])), want, rtol=1e-12)
    seen = [0, 2]
    want = scipy.stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(Y[0, seen])
    holes = wide(Y[0]).at[1].set(jnp.nan)
    np.testing.assert_allclose(leaf.log_prob((wide(X[0]), holes)), want, rtol=1e-12)
    draws = jax.vmap(lambda k: leaf.sample_given(k, wide(X[0])))(jr.split(jr.key(0), 4000))
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(covariance.max() / 4000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1 * covariance.max())


@each
def test_refit_is_the_best_of_its_kind(name):
    """No slope is left in anything that may move, and nothing else has moved."""
    start = make(name)
    data, weights = (wide(X), wide(Y)), wide(W)
    fitted = refit(start, data, weights)
    free, rebuild = split(fitted)
    value = lambda raw: weights @ jax.vmap(rebuild(raw).log_prob)(data)
    for leaf in jax.tree_util.tree_leaves(jax.grad(value)(free)):
        np.testing.assert_allclose(leaf, 0, atol=1e-9)
    kept = np.zeros((M, P + 1), bool) if start_mask(start) is None else ~start_mask(start)
    np.testing.assert_array_equal(line(fitted)[kept], line(start)[kept])
    assert np.abs(line(fitted) - line(start))[~kept].min(initial=1) > 1e-3
    nothing = refit(start, data, jnp.zeros(N))
    agree(eqx.filter(nothing, eqx.is_inexact_array), eqx.filter(start, eqx.is_inexact_array), 1e-15)


def start_mask(leaf):
    return None if isinstance(leaf, pd.LinearGaussian) or leaf.free is None else np.asarray(leaf.free)


def test_masked_rows_are_least_squares_in_their_free_columns():
    fitted = refit(make("diagonal_masked"), (wide(X), wide(Y)), wide(W))
    design = np.column_stack([X, np.ones(N)])
    root = np.sqrt(W)[:, None]
    for j in range(M):
        known = np.column_stack([A, B])[j]
        residual = Y[:, j] - design[:, ~FREE[j]] @ known[~FREE[j]]
        if FREE[j].any():
            best = np.linalg.lstsq(root * design[:, FREE[j]], root[:, 0] * residual, rcond=None)[0]
            np.testing.assert_allclose(line(fitted)[j, FREE[j]], best, rtol=1e-10)
            residual = residual - design[:, FREE[j]] @ best
        np.testing.assert_allclose(fitted.scale[j], np.sqrt(np.average(residual**2, weights=W)), rtol=1e-10)


# ------------------------------------------------------------------ expected statistics


def _uncertain():
    """Every pair is a Gaussian; and the same first two moments as a cloud of points around each mean."""
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(N, P + M, P + M)) * 0.5
    spread = np.einsum("n,nij,nkj->ik", W, roots, roots)
    pairs = pd.UncertainPairs(wide(X), wide(Y), wide(spread[:P, :P]), wide(spread[P:, :P]), wide(spread[P:, P:]))
    q = P + M
    steps = np.concatenate([roots, -roots], axis=2).transpose(0, 2, 1) * np.sqrt(q)
    points = np.concatenate([X, Y], axis=1)[:, None] + steps
    points = points.reshape(-1, q)
    return pairs, (wide(points[:, :P]), wide(points[:, P:])), wide(np.repeat(W / (2 * q), 2 * q))


@each
def test_uncertain_pairs_are_clouds_of_points(name):
    pairs, cloud, shares = _uncertain()
    leaf = make(name)
    agree(leaf.statistics(pairs, wide(W)), leaf.statistics(cloud, shares), 1e-11)
    agree(
        eqx.filter(refit(leaf, pairs, wide(W)), eqx.is_inexact_array),
        eqx.filter(refit(leaf, cloud, shares), eqx.is_inexact_array),
        1e-10,
    )


def test_every_kind_of_leaf_takes_uncertain_pairs():
    pairs, cloud, shares = _uncertain()
    member = make("full")
    prior = pml.conjugate.MatrixNormalInverseWishart(
        np.zeros((M, P + 1)), np.eye(P + 1), np.eye(M), 5.0, intercept=True
    )
    for leaf in (pml.ML(member), pml.MAP(member, prior), pml.Bayes(prior, prior), pml.Frozen(pml.ML(member))):
        agree(leaf.refit(leaf.statistics(pairs, wide(W))), leaf.refit(leaf.statistics(cloud, shares)), 1e-10)


@each
def test_missing_entries_are_steps_of_em(name):
    """Repeated refits climb the likelihood of what was seen, to where its gradient vanishes."""
    rng = np.random.default_rng(3)  # enough units: with few, a full covariance is unbounded
    x = rng.normal(size=(40, P))
    y = x @ A.T + rng.normal(size=(40, M)) @ G.T
    y[rng.uniform(size=y.shape) < 0.1] = np.nan
    data, weights = (wide(x), wide(y)), jnp.ones(40)
    score = eqx.filter_jit(lambda leaf: weights @ jax.vmap(leaf.log_prob)(data))
    leaf, trace = make(name), []
    for _ in range(150):
        trace.append(float(score(leaf)))
        leaf = refit(leaf, data, weights)
    assert np.diff(trace).min() > -1e-11
    free, rebuild = split(leaf)
    slope = jax.grad(lambda raw: weights @ jax.vmap(rebuild(raw).log_prob)(data))(free)
    assert max(float(jnp.abs(s).max()) for s in jax.tree_util.tree_leaves(slope)) < 1e-6


# ------------------------------------------------------------------ what may move


@pytest.mark.parametrize("name", ["diagonal_masked", "spherical_masked", "directions_known"])
def test_gradients_leave_what_is_not_free(name):
    """Even an optimizer that decays weights."""
    import optax

    start = pml.factors.LinearRegression(pml.ML(make(name)))
    data = (wide(X), wide(Y))
    kept = ~start_mask(make(name))
    best = pml.fit(start, data, rtol=1e-14, max_steps=200).final_objective
    for method in (pml.LBFGS(), pml.Gradient(optax.adamw(1e-2, weight_decay=0.1))):
        result = pml.fit(start, data, method, max_steps=300, rtol=1e-13)
        np.testing.assert_array_equal(line(result.model.observation.distribution)[kept], line(make(name))[kept])
        if isinstance(method, pml.LBFGS):
            np.testing.assert_allclose(result.final_objective, best, rtol=1e-9)


def test_parameters_are_counted():
    count = {name: pml.num_parameters(make(name)) for name in LEAVES}
    masked = int(FREE.sum())
    assert count["full"] == 9 + 6
    assert count["diagonal"] == 9 + 3
    assert count["diagonal_masked"] == masked + 3
    assert count["spherical"] == count["directions"] == 9 + 1
    assert count["spherical_masked"] == masked + 1
    assert count["directions_known"] == 1


def test_a_row_without_noise_stays_exact():
    """A companion matrix: the first row is learned, the second shifts."""
    free = np.array([[True, True, False], [False, False, False]])
    leaf = pd.LinearNormal([[0.5, 0.2], [1.0, 0.0]], [0.0, 0.0], [1.0, 0.0], free=free, floor=1e-4)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(20, 2))
    y = np.column_stack([x @ [0.3, -0.4] + 0.1 * rng.normal(size=20), x[:, 0]])
    data, weights = (wide(x), wide(y)), jnp.ones(20)
    fitted = refit(leaf, data, weights)
    assert fitted.scale[1] == 0
    assert 0 < fitted.scale[0] < 0.2
    np.testing.assert_array_equal(line(fitted)[1], [1.0, 0.0, 0.0])
    assert not fitted.degenerate()
    assert pml.num_parameters(leaf) == 3
    np.testing.assert_array_equal(leaf.covariance, [[1.0, 0.0], [0.0, 0.0]])
    first = scipy.stats.norm(leaf.mean_at(wide(x[0]))[0], 1.0).logpdf(y[0, 0])
    np.testing.assert_allclose(leaf.log_prob((wide(x[0]), wide(y[0]))), first)
    broken = wide(y[0]).at[1].add(0.1)
    free_values, rebuild = split(leaf)
    for target, finite in ((wide(y[0]), True), (broken, False)):
        value, slope = jax.value_and_grad(lambda raw, t=target: rebuild(raw).log_prob((wide(x[0]), t)))(free_values)
        assert np.isfinite(value) == finite
        assert all(np.all(np.isfinite(s)) for s in jax.tree_util.tree_leaves(slope))
    assert leaf.sample_given(jr.key(0), wide(x[0]))[1] == x[0, 0]
    still = pml.fit(pml.factors.LinearRegression(pml.ML(leaf)), data, pml.LBFGS(), max_steps=50).model
    assert still.observation.distribution.scale[1] == 0
    silent = pd.LinearSphericalNormal(np.eye(2), np.zeros(2), 0.0, directions=np.eye(2) * 2)
    assert refit(silent, (wide(x), wide(x)), weights).scale == 0
    assert silent.log_prob((wide(x[0]), wide(x[0]))) == 0
    assert silent.log_prob((wide(x[0]), wide(y[0]))) == -np.inf


def test_the_implicit_gradient_of_a_fit_respects_the_mask():
    """Where some entries are fixed, the others still move with the data as the closed form says."""
    leaf = make("diagonal_masked")
    model = pml.factors.LinearRegression(pml.ML(leaf))
    fit_line = lambda y: line_of(pml.fit(model, (wide(X), y), max_steps=20, rtol=1e-14).model.observation.distribution)
    exact = lambda y: line_of(leaf.refit(leaf.statistics((wide(X), y), jnp.ones(N))))
    loss = lambda f: lambda y: jnp.sum(jnp.sin(f(y)))
    np.testing.assert_allclose(jax.grad(loss(fit_line))(wide(Y)), jax.grad(loss(exact))(wide(Y)), atol=1e-8)


def line_of(leaf):
    return jnp.concatenate([leaf.matrix, leaf.offset[:, None]], axis=1)


@each
def test_transformations_and_dtype(name):
    small, large = make(name, "float32"), make(name)
    data = (wide(X), wide(Y))
    narrow = jax.tree_util.tree_map(lambda a: a.astype("float32"), (data, wide(W)))
    ours = refit(small, *narrow)
    floats = lambda t: eqx.filter(t, eqx.is_inexact_array)
    assert {a.dtype.name for a in jax.tree_util.tree_leaves(floats(ours))} == {"float32"}
    agree(floats(ours), floats(refit(large, data, wide(W))), 2e-5)
    stack = jax.tree_util.tree_map(lambda a: jnp.stack([a, a]), large)
    both = eqx.filter_jit(eqx.filter_vmap(lambda leaf, w: leaf.refit(leaf.statistics(data, w))))(
        stack, jnp.stack([wide(W), jnp.ones(N)])
    )
    first = jax.tree_util.tree_map(lambda a: a[0], both)
    agree(floats(first), floats(refit(large, data, wide(W))), 1e-10)
    assert pml.num_parameters(stack) == 2 * pml.num_parameters(large)
    other = with_constants_of(first, large)
    assert jax.tree_util.tree_structure(other) == jax.tree_util.tree_structure(large)


# ------------------------------------------------------------------ bad input

BAD = {
    "matrix has shape": lambda: pd.LinearNormal(B, B, SCALE),
    "offset has shape": lambda: pd.LinearSphericalNormal(A, np.zeros(2), 1.0),
    "scale has shape": lambda: pd.LinearNormal(A, B, np.ones(2)),
    "wanted a scalar": lambda: pd.LinearSphericalNormal(A, B, np.ones(3)),
    "scale must not be negative": lambda: pd.LinearNormal(A, B, -1.0),
    "free has shape": lambda: pd.LinearNormal(A, B, SCALE, free=np.ones((M, P), bool)),
    "directions has shape": lambda: pd.LinearSphericalNormal(A, B, 1.0, directions=np.eye(2)),
    "singular": lambda: pd.LinearSphericalNormal(A, B, 1.0, directions=np.ones((M, M))),
    "None or all False": lambda: pd.LinearSphericalNormal(A, B, 1.0, free=FREE, directions=G),
    "below the square root of floor": lambda: pd.LinearNormal(A, B, SCALE, floor=1.0),
    "floor must not be negative": lambda: pd.LinearNormal(A, B, SCALE, floor=-1.0),
}


@pytest.mark.parametrize("message", list(BAD))
def test_bad_parameters_are_named(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_a_mask_is_boolean_and_pairs_are_pairs():
    with pytest.raises(TypeError, match="boolean"):
        pd.LinearNormal(A, B, SCALE, free=np.ones((M, P + 1)))
    with pytest.raises(ValueError, match="tuple"):
        make("diagonal").validate(jnp.zeros((3, 2)))
    with pytest.raises(TypeError, match="sample_given"):
        make("diagonal").sample(jr.key(0))


# ------------------------------------------------------------------ priors and Bayesian regression


def _bayesian(name):
    rng = np.random.default_rng(4)
    root = rng.normal(size=(P + 1, P + 1))
    precision, mean = root @ root.T + np.eye(P + 1), rng.normal(size=(M, P + 1))
    if name == "diagonal":
        return pml.conjugate.MatrixNormalInverseChiSquared(mean, precision, 4.0, SCALE, intercept=True)
    if name == "spherical":
        return pml.conjugate.SphericalMatrixNormalInverseChiSquared(mean, precision, 4.0, 1.5, intercept=True)
    return pml.conjugate.MatrixNormalInverseWishart(mean, precision, SIGMA, 4.0, intercept=True)


@pytest.mark.parametrize("name", ["diagonal", "spherical", pytest.param("full", marks=pytest.mark.thorough)])
def test_bayesian_regression_is_one_student_t_of_all_data(name):
    """Evidence, posterior predictive and the fit of a `Bayes` leaf, by dense multivariate Student-t's."""
    prior = _bayesian(name)
    design = np.column_stack([X, np.ones(N)])
    row = np.eye(N) + design @ np.linalg.solve(np.asarray(prior.column_precision), design.T)
    mean = design @ np.asarray(prior.loc).T

    def evidence(y):
        if name == "diagonal":
            each = zip(y.T, mean.T, SCALE, strict=True)
            return sum(scipy.stats.multivariate_t(m, s * row, df=4).logpdf(v) for v, m, s in each)
        shape = 1.5 * np.kron(row, np.eye(M))
        if name == "spherical":
            return scipy.stats.multivariate_t(mean.ravel(), shape, df=4).logpdf(y.ravel())
        return _matrix_t(y, mean, row, SIGMA, 4.0)

    posterior = prior.update((wide(X), wide(Y)))
    np.testing.assert_allclose(prior.log_evidence((wide(X), wide(Y))), evidence(Y), rtol=1e-10)
    model = pml.factors.LinearRegression(pml.Bayes(prior, prior))
    result = pml.fit(model, (wide(X), wide(Y)), max_steps=5)
    np.testing.assert_allclose(result.final_objective, evidence(Y), rtol=1e-10)
    agree(result.model.observation.posterior, posterior, 1e-10)
    new = (wide(X[0] + 1), wide(Y[0] - 1))
    more = prior.log_evidence((jnp.vstack([wide(X), new[0]]), jnp.vstack([wide(Y), new[1]])))
    np.testing.assert_allclose(result.model.given(new[0]).log_prob(new[1]), more - evidence(Y), rtol=1e-9)
    np.testing.assert_allclose(result.model.predict(new[0]), posterior.interior().mean_at(new[0]), rtol=1e-10)


def _matrix_t(y, mean, row, scale, df):
    """Log density of the matrix Student-t, from its normalizer (Murphy 2023, section 15.2)."""
    n, m = y.shape
    lift = lambda v: scipy.special.multigammaln(0.5 * v, m)
    inner = scale + (y - mean).T @ np.linalg.solve(row, y - mean)
    logdet = lambda a: np.linalg.slogdet(a)[1]
    value = lift(df + n) - lift(df) - 0.5 * n * m * np.log(np.pi) - 0.5 * m * logdet(row)
    return value + 0.5 * df * logdet(scale) - 0.5 * (df + n) * logdet(inner)


@pytest.mark.parametrize("name", ["diagonal", "spherical"])
def test_map_is_the_top_of_the_posterior_and_refuses_masks(name):
    prior, data = _bayesian(name), (wide(X), wide(Y))
    result = pml.fit(pml.factors.LinearRegression(pml.MAP(make(name), prior)), data, max_steps=50)
    agree(result.model.observation.distribution, prior.update(data).mode(), 1e-10)
    for masked in (make(f"{name}_masked"), *([make("directions")] if name == "spherical" else [])):
        with pytest.raises(ValueError, match="ML leaf"):
            pml.fit(pml.factors.LinearRegression(pml.MAP(masked, prior)), data)

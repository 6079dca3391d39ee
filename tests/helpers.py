"""Registries: one line here subjects a newcomer to every law of its kind.

Each entry is a function of a dtype, so that every law runs in float32 and in float64.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import quadrature

import probml_jax as pml
from probml_jax import conjugate
from probml_jax import distributions as pd

# ---------------------------------------------------------------- distributions


def _of_dtype(registry):
    """Entries are written as functions of `f`, which makes arrays of the dtype; outside they take the dtype."""
    return {name: lambda dtype, make=make: make(lambda x: jnp.asarray(x, dtype)) for name, make in registry.items()}


# name -> a member, and another member of the same family (for divergences)
_DISTRIBUTIONS = {
    "bernoulli": lambda f: pd.Bernoulli(f([0.3, 0.85])),
    "bernoulli_scalar": lambda f: pd.Bernoulli(f(0.02)),
    "binomial": lambda f: pd.Binomial(f([0.3, 0.9]), f([3, 7])),
    "categorical": lambda f: pd.Categorical(f([0.2, 0.5, 0.3])),
    "multinomial": lambda f: pd.Multinomial(f([0.2, 0.5, 0.3]), f(5)),
    "poisson": lambda f: pd.Poisson(f([0.3, 4.5])),
    "negative_binomial": lambda f: pd.NegativeBinomial(f([2.5, 0.6]), f([0.6, 0.3])),
    "beta": lambda f: pd.Beta(f([2.5, 0.7]), f([1.5, 3.0])),
    "beta_scalar": lambda f: pd.Beta(f(60.0), f(20.0)),
    "dirichlet": lambda f: pd.Dirichlet(f([0.8, 2.0, 4.0])),
    "gamma": lambda f: pd.Gamma(f([2.5, 0.7]), f([1.5, 0.3])),
    "gamma_scalar": lambda f: pd.Gamma(f(40.0), f(3.0)),
    "inverse_gamma": lambda f: pd.InverseGamma(f([6.5, 9.7]), f([1.5, 4.0])),
    "normal": lambda f: pd.Normal(f([1.0, -2.0]), f([0.5, 3.0])),
    "normal_scalar": lambda f: pd.Normal(f(3.0), f(0.1), f(1e-4)),
    "normal_one": lambda f: pd.Normal(f([3.0]), f(2.0)),
    "spherical_normal": lambda f: pd.SphericalNormal(f([1.0, -2.0]), f(0.5), f(1e-3)),
    "multivariate_normal": lambda f: pd.MultivariateNormal(f([1.0, -2.0]), f([[2.0, 0.9], [0.9, 1.0]])),
    "multivariate_normal_one": lambda f: pd.MultivariateNormal(f([1.0]), f([[2.0]]), f([1e-3])),
    "exponential": lambda f: pd.Exponential(f([0.5, 3.0])),
    "student_t": lambda f: pd.StudentT(f([9.0, 30.0]), f([1.0, -2.0]), f([0.5, 3.0])),
    "multivariate_student_t": lambda f: pd.MultivariateStudentT(f(9.0), f([1.0, -2.0]), f([[2.0, 0.9], [0.9, 1.0]])),
    "beta_binomial": lambda f: pd.BetaBinomial(f([2.0, 0.5]), f([3.0, 1.5]), f([4, 6])),
    "dirichlet_multinomial": lambda f: pd.DirichletMultinomial(f([0.8, 2.0, 4.0]), f(5)),
    "uniform": lambda f: pd.Uniform(f([-1.0, 0.0]), f([3.0, 0.1])),
}
_OTHERS = {
    "bernoulli": lambda f: pd.Bernoulli(f([0.6, 0.5])),
    "binomial": lambda f: pd.Binomial(f([0.6, 0.5]), f([3, 7])),
    "categorical": lambda f: pd.Categorical(f([0.4, 0.1, 0.5])),
    "multinomial": lambda f: pd.Multinomial(f([0.4, 0.1, 0.5]), f(5)),
    "poisson": lambda f: pd.Poisson(f([1.3, 3.5])),
    "negative_binomial": lambda f: pd.NegativeBinomial(f([2.5, 0.6]), f([0.3, 0.5])),
    "beta": lambda f: pd.Beta(f([1.5, 0.9]), f([2.5, 2.0])),
    "dirichlet": lambda f: pd.Dirichlet(f([1.8, 1.0, 5.0])),
    "gamma": lambda f: pd.Gamma(f([1.5, 0.9]), f([1.0, 0.5])),
    "inverse_gamma": lambda f: pd.InverseGamma(f([5.5, 8.0]), f([2.0, 3.0])),
    "normal": lambda f: pd.Normal(f([0.0, -1.0]), f([0.8, 2.0])),
    "spherical_normal": lambda f: pd.SphericalNormal(f([0.5, -2.5]), f(0.8)),
    "multivariate_normal": lambda f: pd.MultivariateNormal(f([0.0, -1.0]), f([[1.0, -0.3], [-0.3, 2.0]])),
    "exponential": lambda f: pd.Exponential(f([0.8, 2.0])),
    "student_t": lambda f: pd.StudentT(f([2.0, 3.0]), f([0.5, -2.5]), f([0.8, 2.0])),
    "multivariate_student_t": lambda f: pd.MultivariateStudentT(f(2.5), f([0.0, -1.0]), f([[1.0, -0.3], [-0.3, 2.0]])),
}
DISTRIBUTIONS, OTHERS = _of_dtype(_DISTRIBUTIONS), _of_dtype(_OTHERS)
# name -> points and log-weights that make an expectation under the member a finite sum
SUPPORTS = {
    "bernoulli": quadrature.counts(2, 2),
    "bernoulli_scalar": quadrature.counts(2),
    "binomial": quadrature.counts(8, 2),
    "categorical": quadrature.labels(3),
    "multinomial": quadrature.compositions(5, 3),
    "poisson": quadrature.counts(45, 2),
    "negative_binomial": quadrature.counts(100, 2),
    "beta": quadrature.interval(0.0, 1.0, dims=2),
    "beta_scalar": quadrature.interval(0.0, 1.0),
    "dirichlet": quadrature.triangle(),
    "gamma": quadrature.half_line([1.0, 2.0], dims=2),
    "gamma_scalar": quadrature.half_line(13.0, points=401),
    "inverse_gamma": quadrature.half_line([0.25, 0.45], dims=2, low=-2.2, high=2.4),
    "normal": quadrature.line([1.0, -2.0], [0.5, 3.0], dims=2),
    "normal_scalar": quadrature.line(3.0, 0.1),
    "normal_one": quadrature.line(3.0, 2.0, dims=1),
    "spherical_normal": quadrature.line([1.0, -2.0], 0.5, dims=2),
    "multivariate_normal": quadrature.plane([1.0, -2.0], [[2**0.5, 0.0], [0.9 / 2**0.5, (1 - 0.405) ** 0.5]]),
    "multivariate_normal_one": quadrature.line(1.0, 2**0.5, dims=1),
    "exponential": quadrature.half_line([2.0, 0.3], dims=2),
    "student_t": quadrature.line([1.0, -2.0], [0.5, 3.0], dims=2, points=101, reach=3.0),
    "multivariate_student_t": quadrature.plane(
        [1.0, -2.0], [[2**0.5, 0.0], [0.9 / 2**0.5, (1 - 0.405) ** 0.5]], points=161, reach=2.8
    ),
    "beta_binomial": quadrature.counts(8, 2),
    "dirichlet_multinomial": quadrature.compositions(5, 3),
    "uniform": quadrature.interval([-1.0, 0.0], [3.0, 0.1], dims=2, points=61, reach=2.9),
}


# ---------------------------------------------------------------- conjugate pairs
# name -> function(dtype) -> (prior, another prior of the same form, data)

_SPREAD = [[2.0, 0.6], [0.6, 1.0]]
_POINTS = [[1.0, 2.0], [0.5, -1.0], [2.0, 0.3], [1.4, 1.1], [-0.7, 0.2]]
_INPUTS = [[1.0, -0.5], [0.3, 2.0], [-1.2, 0.4], [0.8, 0.9], [2.1, -1.0]]


def _pair(cls, first, second, data, **static):
    """Both priors and the data in one dtype; integer data keep theirs."""

    def make(dtype):
        array = lambda a: jnp.asarray(a, dtype)
        as_data = lambda a: array(a) if np.issubdtype(np.asarray(a).dtype, np.floating) else jnp.asarray(a)
        xs = tuple(map(as_data, data)) if isinstance(data, tuple) else as_data(data)
        return cls(*map(array, first), **static), cls(*map(array, second), **static), xs

    return make


CONJUGATE = {
    "beta_bernoulli": _pair(conjugate.BetaBernoulli, (2.0, 3.0), (1.5, 1.2), [1, 0, 1, 1, 0]),
    "beta_binomial": _pair(conjugate.BetaBinomial, (2.0, 3.0, 4.0), (1.5, 1.2, 4.0), [1, 4, 2, 3, 0]),
    "dirichlet_categorical": _pair(
        conjugate.DirichletCategorical, ([1.5, 2.0, 1.2],), ([1.0, 3.0, 0.5],), [0, 2, 1, 1, 0]
    ),
    "dirichlet_multinomial": _pair(
        conjugate.DirichletMultinomial,
        ([1.5, 2.0, 1.2], 3.0),
        ([1.0, 3.0, 0.5], 3.0),
        [[1, 2, 0], [0, 1, 2], [3, 0, 0], [1, 1, 1], [0, 2, 1]],
    ),
    "gamma_poisson": _pair(conjugate.GammaPoisson, (2.0, 0.7), (3.0, 1.5), [2, 0, 3, 5, 1]),
    "gamma_exponential": _pair(
        conjugate.GammaExponential,
        ([2.0, 1.3], [0.7, 1.1]),
        ([3.0, 2.2], [1.5, 0.4]),
        [[0.4, 1.0], [1.7, 0.3], [0.2, 2.2], [3.1, 0.1], [0.9, 0.8]],
    ),
    "normal_known_variance": _pair(
        conjugate.NormalKnownVariance,
        ([0.5, -0.2], [1.5, 0.7], [0.8, 1.1]),
        ([0.0, 0.3], [1.0, 1.0], [0.8, 1.1]),
        _POINTS,
    ),
    "multivariate_normal_known_covariance": _pair(
        conjugate.MultivariateNormalKnownCovariance,
        ([0.5, -0.2], _SPREAD, [[1.0, -0.3], [-0.3, 0.7]]),
        ([0.0, 0.3], [[1.0, 0.2], [0.2, 0.8]], [[1.0, -0.3], [-0.3, 0.7]]),
        _POINTS,
    ),
    "inverse_wishart_known_mean": _pair(
        conjugate.InverseWishartKnownMean,
        (4.5, _SPREAD, [0.3, 0.1]),
        (6.0, [[1.0, 0.2], [0.2, 0.8]], [0.3, 0.1]),
        _POINTS,
    ),
    "normal_inverse_chi_squared": _pair(
        conjugate.NormalInverseChiSquared,
        ([0.5, -0.2], [0.8, 1.2], [4.0, 5.0], [1.3, 0.5]),
        ([0.0, 0.3], [1.5, 0.9], [5.0, 6.0], [0.6, 1.0]),
        _POINTS,
    ),
    "spherical_normal_inverse_chi_squared": _pair(
        conjugate.SphericalNormalInverseChiSquared,
        ([0.5, -0.2], 0.8, 4.0, 1.3),
        ([0.0, 0.3], 1.5, 5.0, 0.6),
        _POINTS,
    ),
    "normal_inverse_wishart": _pair(
        conjugate.NormalInverseWishart,
        ([0.5, -0.2], 0.8, _SPREAD, 4.5),
        ([0.0, 0.3], 1.5, [[1.0, 0.2], [0.2, 0.8]], 6.0),
        _POINTS,
    ),
    "matrix_normal_inverse_wishart": _pair(
        conjugate.MatrixNormalInverseWishart,
        ([[0.5, -0.2], [0.1, 0.4]], [[1.0, 0.3], [0.3, 0.6]], _SPREAD, 4.5),
        ([[0.0, 0.3], [0.0, 0.0]], [[1.5, 0.0], [0.0, 0.9]], [[1.0, 0.2], [0.2, 0.8]], 6.0),
        (_INPUTS, _POINTS),
    ),
    "matrix_normal_inverse_wishart_intercept": _pair(
        conjugate.MatrixNormalInverseWishart,
        ([[0.5, -0.2, 1.0]], [[1.0, 0.3, 0.0], [0.3, 0.6, 0.1], [0.0, 0.1, 0.4]], [[1.3]], 4.5),
        ([[0.0, 0.3, 0.0]], [[1.5, 0.0, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 1.0]], [[0.6]], 6.0),
        (_INPUTS, [[1.0], [0.5], [2.0], [1.4], [-0.7]]),
        intercept=True,
    ),
    "matrix_normal_inverse_chi_squared": _pair(
        conjugate.MatrixNormalInverseChiSquared,
        (
            [[0.5, -0.2, 1.0], [0.1, 0.4, 0.0]],
            [[1.0, 0.3, 0.0], [0.3, 0.6, 0.1], [0.0, 0.1, 0.4]],
            [4.0, 5.0],
            [1.3, 0.5],
        ),
        (
            [[0.0, 0.3, 0.0], [0.0, 0.0, 0.2]],
            [[1.5, 0.0, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 1.0]],
            [5.0, 6.0],
            [0.6, 1.0],
        ),
        (_INPUTS, _POINTS),
        intercept=True,
    ),
    "matrix_normal_inverse_chi_squared_spherical": _pair(
        conjugate.SphericalMatrixNormalInverseChiSquared,
        ([[0.5, -0.2], [0.1, 0.4]], [[1.0, 0.3], [0.3, 0.6]], 4.0, 1.3),
        ([[0.0, 0.3], [0.0, 0.0]], [[1.5, 0.0], [0.0, 0.9]], 5.0, 0.6),
        (_INPUTS, _POINTS),
    ),
}


# ---------------------------------------------------------------- models


def _clusters(dtype, n=60, d=2):
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(2, d)) * 3
    return jnp.asarray(centers[rng.integers(0, 2, n)] + rng.normal(size=(n, d)), dtype)


def _heavy_tails(dtype, n=150):
    """Clusters with tails that have an index: on Gaussian data the best number of degrees of freedom is infinite."""
    rng = np.random.default_rng(8)
    centers = np.array([[-8.0, 0.0], [8.0, 8.0]])
    return jnp.asarray(centers[rng.integers(0, 2, n)] + rng.standard_t(2.0, size=(n, 2)), dtype)


def _with_holes(xs):
    holes = np.random.default_rng(4).uniform(size=xs.shape) < 0.15
    return jnp.where(jnp.asarray(holes), jnp.nan, xs)


def _counts(dtype, n=60, d=3):
    rng = np.random.default_rng(5)
    rates = np.where(rng.integers(0, 2, n)[:, None] == 0, 2.0, 8.0)
    return jnp.asarray(rng.poisson(np.broadcast_to(rates, (n, d))), dtype)


def _binary(dtype, n=60, d=6):
    rng = np.random.default_rng(6)
    probs = rng.uniform(0.1, 0.9, (2, d))[rng.integers(0, 2, n)]
    return jnp.asarray(rng.uniform(size=(n, d)) < probs, dtype)


def _labels(n=60, d=4):
    rng = np.random.default_rng(7)
    probs = rng.dirichlet(np.full(3, 0.4), (2, d))
    z = rng.integers(0, 2, n)
    xs = np.array([[rng.choice(3, p=probs[z[i], j]) for j in range(d)] for i in range(n)])
    return jnp.asarray(np.where(rng.uniform(size=xs.shape) < 0.1, -1, xs))


def _gaussian(covariance="full", estimate="ml", holes=False):
    def build(dtype):
        xs = _clusters(dtype)
        xs = _with_holes(xs) if holes else xs
        return pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, covariance, estimate=estimate), xs

    return build


def _built(builder, data, **settings):
    return lambda dtype: (builder(jr.key(0), data(dtype), 2, **settings), data(dtype))


def _mixture_of_mixtures(dtype):
    xs = _clusters(dtype)
    build = lambda start: pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, "diagonal", init=start)
    parts = eqx.filter_vmap(build)(jnp.stack([xs[:2], xs[2:4]]))
    weights = pml.ML(pml.distributions.Categorical(jnp.asarray([0.4, 0.6], dtype)))
    return pml.mixtures.Mixture(weights, pml.Stacked(pml.Nested(parts))), xs


def _half_frozen(dtype):
    xs = _clusters(dtype)
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, "full")
    return pml.mixtures.Mixture(pml.Frozen(model.weights), model.components), xs


def _ragged(dtype, n=12, t=7):
    """Sequences of two alternating regimes, with lengths and holes."""
    rng = np.random.default_rng(10)
    states = (np.cumsum(rng.uniform(size=(n, t)) < 0.3, axis=1) + rng.integers(0, 2, (n, 1))) % 2
    xs = np.where(states[:, :, None] == 0, -1.5, 1.5) + rng.normal(size=(n, t, 2))
    return _with_holes(jnp.asarray(xs, dtype)), jnp.asarray(rng.integers(2, t + 1, n), jnp.int32)


def _symbols(n=12, t=7):
    return jnp.asarray(np.random.default_rng(11).integers(-1, 3, (n, t)), jnp.int32)


def _hmm(dtype):
    data = _ragged(dtype)
    return pml.sequences.gaussian_hmm(jr.key(0), data, 2, "full"), data


def _symbol_hmm(dtype):
    data = _symbols(), jnp.asarray(np.random.default_rng(12).integers(2, 8, 12), jnp.int32)
    return pml.sequences.categorical_hmm(jr.key(0), data, 2, 3, estimate="bayes", dtype=dtype), data


def _dynamics(dtype):
    data = _ragged(dtype)
    return pml.sequences.linear_dynamical_system(jr.key(0), data, 2, noise="full", estimate="map"), data


def _level(dtype):
    """A random walk per row, with holes: dynamics that are known but for their scales, and a diffuse start."""
    xs = np.cumsum(np.random.default_rng(13).normal(size=(12, 9, 1)), axis=1)
    xs = _with_holes(jnp.asarray(xs + np.random.default_rng(14).normal(size=xs.shape), dtype))
    return pml.sequences.local_level(xs), xs


def _gapped_chain(dtype):
    return pml.sequences.MarkovChain.from_data(_symbols(), 3, smoothing=1.0, estimate="map", dtype=dtype), _symbols()


def _network(dtype, estimate="map"):
    """A network with a hidden variable, rows with holes, and a prior that keeps every table inside."""
    rows = np.random.default_rng(14).integers(0, 2, (40, 4))
    rows[:, 2] = np.where(rows[:, 3] == 1, rows[:, 1], rows[:, 2])
    rows[:, 0] = -1
    rows[::5, 1] = -1
    parents = {"h": (), "a": ("h",), "b": ("a", "h"), "c": ("h",)}
    start = lambda *shape: jnp.asarray(np.random.default_rng(15).dirichlet([4.0, 4.0], shape), dtype)
    tables = {"h": start(), "a": start(2), "b": start(2, 2), "c": start(2)}
    return pml.graphs.BayesNet(parents, tables).with_prior(2.0, estimate), jnp.asarray(rows)


def _factored(dtype, n=80, d=5):
    """Two factors behind five features."""
    rng = np.random.default_rng(13)
    xs = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(size=(n, d)) + rng.normal(size=d)
    return jnp.asarray(xs, dtype)


def _factors(size=2, holes=False, **settings):
    def build(dtype):
        xs = _with_holes(_factored(dtype)) if holes else _factored(dtype)
        return pml.factors.factor_analysis(jr.key(0), xs, size, **settings), xs

    return build


def _factor_analysers(dtype):
    xs = _factored(dtype)
    xs = xs + jnp.where(jnp.arange(80)[:, None] < 40, 0.0, 6.0).astype(dtype)
    return pml.factors.mixture_of_factor_analysers(jr.key(0), xs, 2, 1, estimate="map"), xs


def _regression(dtype):
    rng = np.random.default_rng(14)
    x = rng.normal(size=(60, 3))
    y = x @ rng.normal(size=(3, 2)) + rng.normal(size=(60, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
    line = pd.LinearGaussian(jnp.zeros((2, 3), dtype), jnp.zeros(2, dtype), jnp.eye(2, dtype=dtype))
    return pml.factors.LinearRegression(pml.ML(line)), (jnp.asarray(x, dtype), _with_holes(jnp.asarray(y, dtype)))


# every family, and every kind of leaf under some family: laws over all combinations would compile for half an hour


def _classes(build, **options):
    """A classifier whose data lack some labels and, where it can do without them, some features."""

    def make(dtype):
        rng = np.random.default_rng(0)
        ys = np.arange(60) % 3
        xs = rng.normal(size=(60, 2)) + 2.5 * np.array([[0, 0], [1, 0], [0, 1]])[ys]
        xs[::7, 0] = np.nan
        some = np.where(rng.uniform(size=60) < 0.4, -1, ys)
        whole = jnp.asarray(np.nan_to_num(xs), dtype)
        return build(whole, jnp.asarray(ys), **options), (jnp.asarray(xs, dtype), jnp.asarray(some))

    return make


MODELS = {
    "gaussian_mixture_full_ml": _gaussian("full", "ml"),
    "gaussian_mixture_full_bayes": _gaussian("full", "bayes"),
    "gaussian_mixture_diagonal_map": _gaussian("diagonal", "map"),
    "gaussian_mixture_spherical_ml": _gaussian("spherical", "ml"),
    "gaussian_mixture_spherical_bayes": _gaussian("spherical", "bayes"),
    "gaussian_mixture_tied_map": _gaussian("tied", "map"),
    "gaussian_mixture_tied_bayes": _gaussian("tied", "bayes"),
    "gaussian_mixture_tied_diagonal_ml": _gaussian("tied_diagonal"),
    "gaussian_mixture_missing_full_map": _gaussian("full", "map", holes=True),
    "gaussian_mixture_missing_diagonal_bayes": _gaussian("diagonal", "bayes", holes=True),
    "gaussian_mixture_missing_tied": _gaussian("tied", holes=True),
    "student_t_mixture_missing": _built(pml.mixtures.student_t_mixture, lambda dtype: _with_holes(_heavy_tails(dtype))),
    "bernoulli_mixture_bayes": _built(pml.mixtures.bernoulli_mixture, _binary, estimate="bayes"),
    "poisson_mixture_ml": _built(pml.mixtures.poisson_mixture, _counts),
    "multinomial_mixture_map": _built(pml.mixtures.multinomial_mixture, _counts, estimate="map"),
    "categorical_mixture_map": lambda dtype: (
        pml.mixtures.categorical_mixture(jr.key(0), _labels(), 2, 3, estimate="map", dtype=dtype),
        _labels(),
    ),
    "mixture_of_mixtures": _mixture_of_mixtures,
    "mixture_half_frozen": _half_frozen,
    "gaussian_hmm": _hmm,
    "categorical_hmm_bayes": _symbol_hmm,
    "markov_chain": _gapped_chain,
    "lda_semi_supervised": _classes(pml.classifiers.lda),
    "qda_semi_supervised_map": _classes(pml.classifiers.qda, estimate="map", smoothing=1.0),
    "naive_bayes_semi_supervised_bayes": _classes(pml.classifiers.gaussian_naive_bayes, estimate="bayes"),
    "bayes_net": _network,
    "bayes_net_bayes": lambda dtype: _network(dtype, "bayes"),
    "linear_dynamical_system": _dynamics,
    "local_level": _level,
    "kmeans": _built(pml.mixtures.kmeans, _clusters),
    "factor_analysis_missing_map": _factors(holes=True, estimate="map"),
    "factor_analysis_ml": _factors(1),  # two factors of five features end in a Heywood case, where EM creeps
    "ppca_ml": _factors(noise="spherical"),
    "ppca_missing_map": _factors(holes=True, noise="spherical", estimate="map"),
    "mixture_of_factor_analysers_map": _factor_analysers,
    "linear_regression_missing": _regression,
}

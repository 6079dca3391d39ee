"""PCA, probabilistic PCA and factor analysis: against dense Gaussians, and what each promises of bad input."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import probml_jax as pml
from probml_jax import distributions as pd
from probml_jax import factors

N, D, P = 120, 7, 2
_rng = np.random.default_rng(0)
A, B, SCALE = _rng.normal(size=(D, P)), _rng.normal(size=D), _rng.uniform(0.5, 0.9, D)
XS = _rng.normal(size=(N, P)) @ A.T + B + SCALE * _rng.normal(size=(N, D))
HOLES = np.where(_rng.uniform(size=(N, D)) < 0.2, np.nan, XS)
W = _rng.uniform(0.5, 2.0, N)

MODELS = {
    "diagonal": lambda: factors.FactorAnalysis(pml.ML(pd.LinearNormal(A, B, SCALE))),
    "spherical": lambda: factors.PPCA(pml.ML(pd.LinearSphericalNormal(A, B, 0.7))),
    "frozen": lambda: factors.FactorAnalysis(pml.Frozen(pml.ML(pd.LinearSphericalNormal(A, B, 0.7)))),
}
each = pytest.mark.parametrize("name", list(MODELS))
PATTERNS = [[], [1], [0, 3, 6], [0, 1, 2, 4, 5, 6], list(range(D))]


def dense(model):
    line = model.line
    return np.asarray(line.offset), np.asarray(line.loadings @ line.loadings.T) + np.diag(line.noise)


@each
@pytest.mark.parametrize("missing", PATTERNS, ids=str)
def test_everything_of_one_event_is_the_dense_gaussian(name, missing):
    model = MODELS[name]()
    mean, covariance = dense(model)
    np.testing.assert_allclose(model.marginal_covariance(), covariance, rtol=1e-12)
    seen = np.setdiff1d(np.arange(D), missing)
    x = XS[0].copy()
    x[missing] = np.nan
    inner = covariance[np.ix_(seen, seen)]
    want = scipy.stats.multivariate_normal(mean[seen], inner).logpdf(x[seen]) if seen.size else 0.0
    np.testing.assert_allclose(model.log_prob(jnp.asarray(x)), want, rtol=1e-10, atol=1e-12)
    a = np.asarray(model.loadings)
    gain = np.linalg.solve(inner, a[seen]).T if seen.size else np.zeros((P, 0))
    latent = model.posterior(jnp.asarray(x))
    np.testing.assert_allclose(latent.loc, gain @ (x[seen] - mean[seen]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(latent.covariance, np.eye(P) - gain @ a[seen], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.transform(jnp.asarray(x)[None])[0], latent.loc, rtol=1e-10, atol=1e-12)
    filled, spread = pd.MultivariateNormal(mean, covariance).impute(jnp.asarray(x))
    ours = model.impute(jnp.asarray(x))
    np.testing.assert_allclose(ours[0], filled, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(ours[1], spread, rtol=1e-9, atol=1e-11)


def test_samples_have_the_moments_of_the_model():
    model = MODELS["diagonal"]()
    xs = np.asarray(jax.vmap(model.sample)(jr.split(jr.key(0), 20_000)))
    mean, covariance = dense(model)
    assert np.all(np.abs(xs.mean(0) - mean) < 5 * np.sqrt(np.diag(covariance) / 20_000))
    np.testing.assert_allclose(np.cov(xs.T), covariance, atol=0.1 * covariance.max())


@each
def test_em_from_second_moments_is_em_from_the_data(name):
    model, xs, weights = MODELS[name](), jnp.asarray(XS), jnp.asarray(W)
    summary = factors.summarize(xs, weights)
    one = jnp.ones(1)
    from_data, from_moments = model.e_step(xs, weights), model.e_step(summary, one)
    close = lambda a, b: jax.tree_util.tree_map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-9, atol=1e-9), a, b
    )
    close(from_data, from_moments)
    np.testing.assert_allclose(model.log_likelihood(summary, one), model.log_likelihood(xs, weights), rtol=1e-11)
    np.testing.assert_allclose(model.surrogate(summary, one, model), model.surrogate(xs, weights, model), rtol=1e-11)
    # several units with spreads of their own, weighted
    halves = jax.tree_util.tree_map(lambda *a: jnp.concatenate(a), *(factors.summarize(xs[i::2]) for i in (0, 1)))
    both = jnp.where(jnp.arange(N) % 2 == 0, 1.5, 0.5)
    close(model.e_step(halves, jnp.array([1.5, 0.5])), model.e_step(xs, both))


def test_fit_summarizes_once_and_agrees_with_the_traced_fit():
    """Inside `jit` nothing is known of the data, so events are used one by one there: the same numbers."""
    xs, weights = jnp.asarray(XS), jnp.asarray(W)
    start = factors.factor_analysis(jr.key(0), xs, P, weights=weights)
    prepared, share = start.prepare(xs, weights)
    assert isinstance(prepared, factors.SecondMoments)
    assert share.shape == (1,)
    kept, _ = start.prepare(jnp.asarray(HOLES), weights)
    assert kept is not prepared
    assert kept.shape == (N, D)
    settings = dict(weights=weights, max_steps=20, rtol=-1.0)
    eager = pml.fit(start, xs, **settings)
    traced = jax.jit(lambda x: pml.fit(start, x, **settings))(xs)
    np.testing.assert_allclose(eager.objective, traced.objective, rtol=1e-10)
    given = pml.fit(start, factors.summarize(xs, weights), max_steps=20, rtol=-1.0)
    np.testing.assert_allclose(eager.objective, given.objective, rtol=1e-12)
    climbed = pml.fit(start, xs, pml.LBFGS(), weights=weights, max_steps=500, rtol=1e-12)
    longer = pml.fit(start, xs, weights=weights, max_steps=5000, rtol=1e-13)
    np.testing.assert_allclose(climbed.final_objective, longer.final_objective, rtol=1e-7)


def test_gradients_through_a_fit_of_probabilistic_pca():
    """Of the closed form, where it has one: the noise variance as a function of the data."""
    start = factors.PPCA.from_data(jnp.asarray(XS), P)

    def fitted(xs):
        return pml.fit(start, xs, max_steps=200, rtol=1e-14).model.noise_scale

    closed = lambda xs: factors.PPCA.from_data(xs, P, num_steps=0).noise_scale
    ours, wanted = jax.grad(fitted)(jnp.asarray(XS)), jax.grad(closed)(jnp.asarray(XS))
    np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("noise", ["diagonal", "spherical"])
def test_missing_entries_are_learned_from_exactly(noise):
    """EM ends where the gradient of the dense objective of what was seen vanishes; an empty row changes nothing."""
    xs = jnp.asarray(HOLES)
    start = factors.factor_analysis(jr.key(0), xs, P, noise=noise, estimate="map")  # no Heywood case to creep towards
    result = pml.fit(start, xs, max_steps=6000, rtol=1e-15)
    assert np.diff(np.asarray(result.objective)[: int(result.num_steps) + 1]).min() > -1e-9
    prior = start.observation.prior

    @jax.jit
    @jax.grad
    def slope(leaf):
        model = factors.FactorAnalysis(pml.ML(leaf))
        return jnp.sum(jax.vmap(model.marginal_distribution().log_prob)(xs)) + prior.log_prob(leaf)

    gradient = slope(result.model.observation.distribution)
    for part in (gradient.matrix, gradient.offset, gradient.scale):
        np.testing.assert_allclose(part, 0, atol=1e-5)
    empty = jnp.concatenate([xs, jnp.full((1, D), jnp.nan)])
    more = pml.fit(start, empty, max_steps=50, rtol=-1.0)
    np.testing.assert_allclose(more.objective, pml.fit(start, xs, max_steps=50, rtol=-1.0).objective, rtol=1e-12)


def test_gradients_with_missing_entries_are_those_of_the_dense_gaussian():
    model, xs = MODELS["diagonal"](), jnp.asarray(HOLES)
    fast = lambda leaf, x: jnp.sum(jax.vmap(factors.FactorAnalysis(pml.ML(leaf)).log_prob)(x))
    slow = lambda leaf, x: jnp.sum(jax.vmap(factors.FactorAnalysis(pml.ML(leaf)).marginal_distribution().log_prob)(x))
    leaf = model.observation.distribution
    ours, theirs = (eqx.filter_jit(jax.grad(f, argnums=(0, 1)))(leaf, xs) for f in (fast, slow))
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), ours, theirs)


# ------------------------------------------------------------------ float32


@pytest.mark.parametrize("holes", [False, True])
def test_float32_far_from_the_origin(holes):
    """Mean 5000, unit variance: the same fit as float64, to single precision."""
    xs = (HOLES if holes else XS) / XS.std(0) + 5000
    wide = pml.fit(factors.factor_analysis(jr.key(0), jnp.asarray(xs), P), jnp.asarray(xs), max_steps=100, rtol=-1.0)
    start = jax.tree_util.tree_map(
        lambda a: a.astype("float32"), factors.factor_analysis(jr.key(0), jnp.asarray(xs), P)
    )
    # the data themselves are rounded to 5000 / 2^24: what they are, in both precisions
    narrow = jnp.asarray(xs, jnp.float32)
    result = pml.fit(start, narrow, max_steps=100, rtol=-1.0)
    assert result.final_objective.dtype == jnp.float32
    again = pml.fit(
        factors.factor_analysis(jr.key(0), jnp.asarray(xs), P), narrow.astype("float64"), max_steps=100, rtol=-1.0
    )
    np.testing.assert_allclose(result.final_objective, again.final_objective, rtol=5e-5)
    np.testing.assert_allclose(result.model.marginal_covariance(), again.model.marginal_covariance(), atol=1e-3)
    np.testing.assert_allclose(wide.final_objective, again.final_objective, rtol=1e-2)


@pytest.mark.parametrize("method", ["eigen", "svd", "randomized"])
def test_pca_in_float32_far_from_the_origin(method):
    rng = np.random.default_rng(1)
    xs = (rng.normal(size=(300, 6)) * [4, 3, 2, 0.5, 0.4, 0.3] + 5000).astype("float32")
    small = factors.PCA.from_data(jnp.asarray(xs), 3, method=method, key=jr.key(0))
    large = factors.PCA.from_data(jnp.asarray(xs, float), 3, method="svd")
    assert {a.dtype.name for a in jax.tree_util.tree_leaves(small)} == {"float32"}
    np.testing.assert_allclose(small.components, large.components, atol=1e-3)
    np.testing.assert_allclose(small.explained_variance, large.explained_variance, rtol=1e-4)


# ------------------------------------------------------------------ PCA and probabilistic PCA


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_the_ways_to_principal_components_agree(shape):
    xs = jnp.asarray(np.random.default_rng(2).normal(size=shape) * np.linspace(3, 1, shape[1]))
    svd = factors.PCA.from_data(xs, 3, method="svd")
    np.testing.assert_allclose(svd.components @ svd.components.T, np.eye(3), atol=1e-12)
    for method in ("eigen", "randomized", "auto"):
        other = factors.PCA.from_data(xs, 3, method=method, key=jr.key(0))
        jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), other, svd)
    left = np.var(np.asarray(xs), axis=0).sum() - np.sum(np.asarray(svd.explained_variance)) * (1 - 1 / shape[0])
    np.testing.assert_allclose(svd.reconstruction_error(xs), left, rtol=1e-9)
    one = svd.transform(xs[0])
    np.testing.assert_allclose(one, svd.transform(xs)[0], atol=1e-12)
    np.testing.assert_allclose(svd.inverse_transform(one), svd.reconstruct(xs)[0], atol=1e-12)


def test_a_whole_weight_is_a_repetition_in_pca():
    counts = np.random.default_rng(3).integers(0, 4, N)
    for method in ("eigen", "svd"):
        by_weight = factors.PCA.from_data(jnp.asarray(XS), 2, weights=jnp.asarray(counts, float), method=method)
        repeated = factors.PCA.from_data(jnp.asarray(np.repeat(XS, counts, axis=0)), 2, method=method)
        jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), by_weight, repeated)


def test_pca_under_jit_vmap_and_grad():
    stack = jnp.stack([jnp.asarray(XS), jnp.asarray(XS[::-1] * 2)])
    together = jax.jit(jax.vmap(lambda x: factors.PCA.from_data(x, 2)))(stack)
    alone = factors.PCA.from_data(stack[1], 2)
    np.testing.assert_allclose(together.components[1], alone.components, atol=1e-10)
    error = lambda x: jnp.sum(factors.PCA.from_data(x, 2).explained_variance)
    x, direction = jnp.asarray(XS), jr.normal(jr.key(0), XS.shape)
    numeric = (error(x + 1e-6 * direction) - error(x - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(jnp.sum(jax.grad(error)(x) * direction), numeric, rtol=1e-6)


def test_probabilistic_pca_is_a_fixed_point_of_em():
    model = factors.PPCA.from_data(jnp.asarray(XS), P, weights=jnp.asarray(W))
    result = pml.fit(model, jnp.asarray(XS), weights=jnp.asarray(W), max_steps=20, rtol=-1.0)
    np.testing.assert_allclose(result.objective, result.objective[0], rtol=1e-12)
    other = factors.factor_analysis(jr.key(1), jnp.asarray(XS), P, noise="spherical", weights=jnp.asarray(W))
    climbed = pml.fit(other, jnp.asarray(XS), weights=jnp.asarray(W), max_steps=5000, rtol=1e-14)
    np.testing.assert_allclose(climbed.final_objective, result.objective[0], rtol=1e-8)
    np.testing.assert_allclose(climbed.model.marginal_covariance(), model.marginal_covariance(), atol=1e-3)


def test_probabilistic_pca_with_holes_carries_on_where_fit_does():
    xs = jnp.asarray(HOLES)
    start = factors.PPCA.from_data(xs, P, num_steps=0)
    some = factors.PPCA.from_data(xs, P, num_steps=30)
    np.testing.assert_allclose(
        pml.objective(some, xs, jnp.ones(N)), pml.fit(start, xs, max_steps=30, rtol=-1.0).objective[30], rtol=1e-10
    )
    filled = np.asarray(jax.vmap(lambda x: some.impute(x)[0])(xs))
    hidden = np.isnan(HOLES)
    naive = np.where(hidden, np.nanmean(HOLES, axis=0)[None], HOLES)
    assert np.mean((filled - XS)[hidden] ** 2) < 0.7 * np.mean((naive - XS)[hidden] ** 2)


def test_erratum_12_the_subspace_of_probabilistic_pca_does_not_depend_on_the_noise():
    """Only the posterior-mean projection tends to the orthogonal one as the noise goes to zero."""
    xs = jnp.asarray(XS)
    pca, ppca = factors.PCA.from_data(xs, P), factors.PPCA.from_data(xs, P)
    np.testing.assert_allclose(np.abs(ppca.components @ pca.components.T), np.eye(P), atol=1e-8)
    values, vectors = np.linalg.eigh(np.cov(XS.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    gaps = []
    for variance in (0.5 * values[P - 1], 1e-2, 1e-8):
        leaf = pd.LinearSphericalNormal(vectors[:, :P] * np.sqrt(values[:P] - variance), XS.mean(0), np.sqrt(variance))
        model = factors.PPCA(pml.ML(leaf))
        # given this noise the likelihood has no slope in the loadings: the subspace is PCA's for every noise
        score = lambda m, leaf=leaf: jnp.sum(
            jax.vmap(factors.PPCA(pml.ML(eqx.tree_at(lambda l: l.matrix, leaf, m))).log_prob)(xs)
        )
        slope = jax.grad(score)(leaf.matrix)
        np.testing.assert_allclose(slope, 0, atol=1e-6 / variance)
        np.testing.assert_allclose(np.abs(model.components @ pca.components.T), np.eye(P), atol=1e-8)
        projected = model.transform(xs) @ model.loadings.T + model.mean()[None, :]
        gaps.append(float(jnp.abs(projected - pca.reconstruct(xs)).max()))
    assert gaps[0] > 0.1
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-6


# ------------------------------------------------------------------ honesty


def test_heywood_cases_and_constant_features_are_reported():
    rng = np.random.default_rng(5)
    z = rng.normal(size=200)
    heywood = jnp.asarray(np.column_stack([z, z + 0.8 * rng.normal(size=200), z + 0.9 * rng.normal(size=200)]))
    heywood = heywood.at[:, 0].set(heywood[:, 1] + heywood[:, 2])
    constant = jnp.asarray(np.column_stack([XS, np.full(N, 3.0)]))
    for xs, size in ((heywood, 2), (constant, 2)):
        start = factors.factor_analysis(jr.key(0), xs, size)
        result = pml.fit(start, xs, max_steps=3000, rtol=1e-12)
        assert np.isfinite(result.final_objective)
        assert int(result.status) == pml.Status.degenerate
        assert np.all(np.asarray(result.model.noise_variance) > 0)
    kept = pml.fit(factors.factor_analysis(jr.key(0), heywood, 2, estimate="map"), heywood, max_steps=3000)
    assert int(kept.status) in (pml.Status.converged, pml.Status.max_steps)


def test_rotation_keeps_the_density_and_simplifies():
    rng = np.random.default_rng(6)
    simple = np.zeros((8, 2))
    simple[:4, 0], simple[4:, 1] = rng.uniform(0.8, 1.0, 4), rng.uniform(0.5, 0.7, 4)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    model = factors.FactorAnalysis(pml.ML(pd.LinearNormal(simple @ turn, np.zeros(8), np.ones(8))))
    turned = model.rotated()
    np.testing.assert_allclose(turned.marginal_covariance(), model.marginal_covariance(), atol=1e-12)
    np.testing.assert_allclose(turned.loadings, simple, atol=1e-6)
    rotation = factors.varimax(jnp.asarray(simple @ turn))
    np.testing.assert_allclose(rotation.matrix @ rotation.matrix.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose((simple @ turn) @ rotation.matrix, rotation.loadings, atol=1e-12)
    with pytest.raises(TypeError, match="ML leaf"):
        MODELS["frozen"]().rotated()


def test_a_mixture_of_factor_analysers_finds_its_clusters():
    rng = np.random.default_rng(7)
    parts = [
        rng.normal(size=(80, 1)) @ rng.normal(size=(1, 4)) * 2 + 0.3 * rng.normal(size=(80, 4)) + c for c in (0, 6)
    ]
    xs = np.concatenate(parts)
    xs[rng.uniform(size=xs.shape) < 0.05] = np.nan
    model = factors.mixture_of_factor_analysers(jr.key(0), jnp.asarray(xs), 2, 1)
    result = pml.fit(model, jnp.asarray(xs), max_steps=100)
    assert np.diff(np.asarray(result.objective)[: int(result.num_steps) + 1]).min() > -1e-8
    labels = np.asarray(jax.vmap(result.model.predict)(jnp.asarray(xs)))
    assert (
        max(
            np.mean(labels[:80] == 0) + np.mean(labels[80:] == 1), np.mean(labels[:80] == 1) + np.mean(labels[80:] == 0)
        )
        > 1.95
    )
    assert result.model.sample(jr.key(0)).shape == (4,)


BAD = {
    "xs has shape": lambda: factors.PCA.from_data(jnp.zeros(4), 1),
    "num_components must be between 1 and 3": lambda: factors.PCA.from_data(jnp.ones((3, 4)), 4),
    "method must be one of": lambda: factors.PCA.from_data(jnp.ones((3, 4)), 2, method="qr"),
    "a key is wanted": lambda: factors.PCA.from_data(jnp.ones((3, 4)), 2, method="randomized"),
    "PPCA.from_data integrates": lambda: factors.PCA.from_data(jnp.asarray(HOLES), 2),
    "infinite": lambda: factors.PCA.from_data(jnp.asarray(XS).at[0, 0].set(jnp.inf), 2),
    "infinite entries": lambda: factors.PPCA.from_data(jnp.asarray(XS).at[0, 0].set(jnp.inf), 2),
    "less than the 7 features": lambda: factors.PPCA.from_data(jnp.asarray(XS), 7),
    "num_factors must be": lambda: factors.factor_analysis(jr.key(0), jnp.asarray(XS), 8),
    "feature 2 of xs is missing": lambda: factors.factor_analysis(jr.key(0), jnp.asarray(XS).at[:, 2].set(jnp.nan), 2),
    "feature 2": lambda: factors.PPCA.from_data(jnp.asarray(XS).at[:, 2].set(jnp.nan), 2),
    "weights has shape": lambda: factors.PCA.from_data(jnp.asarray(XS), 2, weights=jnp.ones(3)),
    "weights must be finite": lambda: factors.factor_analysis(jr.key(0), jnp.asarray(XS), 2, weights=-jnp.ones(N)),
    "weights are all zero": lambda: factors.summarize(jnp.asarray(XS), jnp.zeros(N)),
    "complete rows": lambda: factors.summarize(jnp.asarray(HOLES)),
    "estimate must be": lambda: factors.factor_analysis(jr.key(0), jnp.asarray(XS), 2, estimate="bayes"),
    "noise must be": lambda: factors.factor_analysis(jr.key(0), jnp.asarray(XS), 2, noise="full"),
    "data has 4 features": lambda: pml.fit(MODELS["diagonal"](), jnp.asarray(XS[:, :4])),
    "n >= d": lambda: factors.dimension_evidence(jnp.asarray(XS[:3])),
    "num_components must be between": lambda: factors.mixture_of_factor_analysers(jr.key(0), jnp.asarray(XS), 0, 2),
}


@pytest.mark.parametrize("message", list(BAD))
def test_bad_input_is_named(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_leaves_that_make_no_factor_model_are_refused():
    full = pml.ML(pd.LinearGaussian(A, B, np.eye(D)))
    prior = pml.conjugate.SphericalMatrixNormalInverseChiSquared(A, np.eye(P), 3.0, 1.0)
    aligned = pml.ML(pd.LinearSphericalNormal(A, B, 1.0, directions=np.eye(D)))
    for leaf, message in ((full, "LinearGaussian"), (pml.Bayes(prior, prior), "point"), (aligned, "directions")):
        with pytest.raises(TypeError, match=message):
            factors.FactorAnalysis(leaf)
    with pytest.raises(TypeError, match="LinearSphericalNormal"):
        factors.PPCA(pml.ML(pd.LinearNormal(A, B, SCALE)))


@functools.cache
def _restarts():
    keys = jr.split(jr.key(0), 3)
    run = lambda key: pml.fit(factors.factor_analysis(key, jnp.asarray(XS), P), jnp.asarray(XS), max_steps=50)
    return jax.jit(jax.vmap(run))(keys)


def test_builders_and_fits_work_under_vmap():
    fits = _restarts()
    assert fits.objective.shape[0] == 3
    assert len(set(np.asarray(fits.objective[:, 0]).tolist())) == 3
    assert np.isfinite(pml.best_of(fits).final_objective)
    np.testing.assert_allclose(fits.final_objective, fits.final_objective.max(), rtol=1e-3)

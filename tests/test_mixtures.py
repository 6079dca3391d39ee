"""Mixtures: the fitted density, missing data, builders, selection, and input that is not as it should be."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml

GAUSSIAN = ["full", "diagonal", "spherical", "tied", "tied_diagonal"]


def _data(n=120, dtype=jnp.float64):
    centers = jnp.array([[0.0, 0, 0], [5, 5, 0], [0, 5, 5]])
    labels = jr.randint(jr.key(0), (n,), 0, 3)
    mix = jnp.array([[1.0, 0.5, 0], [0, 1, 0.3], [0, 0, 0.8]])
    return (centers[labels] + jr.normal(jr.key(1), (n, 3)) @ mix).astype(dtype)


@pytest.fixture(scope="module")
def xs():
    return _data()


@pytest.fixture(scope="module")
def fitted(xs):
    return pml.fit(pml.mixtures.gaussian_mixture(jr.key(2), xs, 3), xs, max_steps=200).model


# ------------------------------------------------------------------ the fitted density


def test_marginals_and_conditionals_multiply_to_the_joint(fitted, xs):
    for x in xs[:4]:
        joint = fitted.log_prob(x)
        marginal = fitted.marginal([2, 0]).log_prob(x[jnp.array([2, 0])])
        conditional = fitted.condition([2, 0], x[jnp.array([2, 0])]).log_prob(x[1:2])
        np.testing.assert_allclose(marginal + conditional, joint, rtol=1e-10)


@pytest.mark.parametrize("covariance", GAUSSIAN)
def test_a_missing_entry_scores_as_the_marginal(xs, covariance):
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, covariance)
    x = xs[0]
    np.testing.assert_allclose(
        model.log_prob(x.at[1].set(jnp.nan)), model.marginal([0, 2]).log_prob(x[jnp.array([0, 2])]), rtol=1e-10
    )
    np.testing.assert_allclose(model.log_prob(jnp.full(3, jnp.nan)), 0, atol=1e-12)
    np.testing.assert_allclose(model.posterior(jnp.full(3, jnp.nan)), model.weights.point().probs, rtol=1e-12)


def test_imputation_is_the_conditional_mean(fitted, xs):
    x = xs[3]
    filled = fitted.impute(x.at[1].set(jnp.nan))
    np.testing.assert_allclose(filled[1], fitted.condition([0, 2], x[jnp.array([0, 2])]).mean()[0], rtol=1e-10)
    np.testing.assert_array_equal(filled[jnp.array([0, 2])], x[jnp.array([0, 2])])
    np.testing.assert_array_equal(fitted.impute(x), x)


def test_samples_follow_the_density(fitted):
    draws = jax.vmap(fitted.sample)(jr.split(jr.key(3), 20000))
    error = jnp.std(draws, axis=0) / np.sqrt(20000)
    assert (jnp.abs(draws.mean(0) - fitted.mean()) < 5 * error).all()


@pytest.mark.thorough
def test_the_bayesian_predictive_integrates_to_one():
    xs = _data()[:, :1]
    model = pml.fit(pml.mixtures.gaussian_mixture(jr.key(2), xs, 2, estimate="bayes"), xs, max_steps=300).model
    grid = jnp.linspace(-60, 60, 20001)[:, None]
    density = jnp.exp(jax.vmap(model.predictive().log_prob)(grid))
    np.testing.assert_allclose(jnp.sum(density) * (grid[1, 0] - grid[0, 0]), 1, atol=1e-3)  # Student-t tails beyond 60
    assert model.predictive().sample(jr.key(0)).shape == (1,)


def test_gradients_with_missing_entries_are_finite_and_right(fitted, xs):
    x = xs[0].at[1].set(jnp.nan)
    slope = jax.grad(lambda m: m.log_prob(x))(fitted)
    keep = jnp.array([0, 2])
    direct = jax.grad(lambda m: m.marginal([0, 2]).log_prob(xs[0][keep]))(fitted)
    for a, b in zip(jax.tree_util.tree_leaves(slope), jax.tree_util.tree_leaves(direct), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    of_data = jax.grad(fitted.log_prob)(x)
    assert np.isfinite(of_data).all()
    assert of_data[1] == 0


def test_em_with_missing_data_reaches_a_stationary_point(xs):
    holes = jnp.where(jr.uniform(jr.key(5), xs.shape) < 0.2, jnp.nan, xs)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(2), holes, 3), holes, max_steps=3000, rtol=1e-14)
    again = pml.fit(result.model, holes, pml.LBFGS(), max_steps=50)
    np.testing.assert_allclose(again.final_objective, result.final_objective, rtol=1e-8)


# ------------------------------------------------------------------ float32 far from the origin


@pytest.mark.parametrize(
    "covariance", [c if c in ("full", "diagonal") else pytest.param(c, marks=pytest.mark.thorough) for c in GAUSSIAN]
)
def test_float32_at_a_mean_of_five_thousand(covariance):
    near = _data(600)
    far = (near + 5000).astype(jnp.float32)
    exact = far.astype(jnp.float64)
    start = lambda data: pml.mixtures.gaussian_mixture(jr.key(0), data, 3, covariance, init=data[:3])
    # the same number of steps: where each of them would stop is another question
    small = pml.fit(start(far), far, max_steps=200, rtol=-1.0)
    large = pml.fit(start(exact), exact, max_steps=200, rtol=-1.0)
    spread = lambda fit: fit.model.components.map(lambda leaf: leaf.point().variance())
    assert small.status in (pml.Status.max_steps, pml.Status.converged)
    np.testing.assert_allclose(spread(small), spread(large), rtol=1e-3)
    np.testing.assert_allclose(small.final_objective, large.final_objective, rtol=1e-5)


@pytest.mark.parametrize("distance", [1.0, 18.0, 30.0, 1e3, 1e5])
def test_pooling_about_the_common_centre_is_as_good_as_about_the_mean(distance):
    """Members near and far from the data's centre, both roads of the statistics; 2e-4 is the float32 road's promise."""
    data = np.random.default_rng(0).normal(size=(500, 3)).astype("float32")
    data[250:] += np.float32(distance)
    weights = np.zeros((2, 500), "float32")
    weights[0, :250] = weights[1, 250:] = 1
    locs = np.stack([data[:250].mean(0), data[250:].mean(0)]) + 0.1

    def covariances(dtype):
        make = lambda m: pml.distributions.MultivariateNormal(m, jnp.eye(3, dtype=dtype))
        stack = pml.Stacked(pml.ML(jax.vmap(make)(jnp.asarray(locs, dtype))))
        stats = stack.statistics(jnp.asarray(data, dtype), jnp.asarray(weights, dtype))
        return stack.refit(stats).each.distribution.covariance

    np.testing.assert_allclose(covariances(jnp.float32), covariances(jnp.float64), atol=2e-4)
    scatter = [np.cov(part.astype("float64").T, bias=True) for part in (data[:250], data[250:])]
    np.testing.assert_allclose(covariances(jnp.float64), scatter, atol=1e-9)


# ------------------------------------------------------------------ builders


@pytest.mark.parametrize("init", ["kmeans++", "random"])
def test_builders_work_under_jit_and_vmap(xs, init):
    build = lambda key: pml.mixtures.gaussian_mixture(key, xs, 3, init=init)
    together = jax.jit(jax.vmap(build))(jr.split(jr.key(0), 4))
    alone = build(jr.split(jr.key(0), 4)[2])
    got = together.components.each.distribution.loc[2]
    np.testing.assert_allclose(got, alone.components.each.distribution.loc, rtol=1e-12)


def test_seeds_respect_weights(xs):
    weights = jnp.zeros(120).at[jnp.array([3, 50, 77])].set(1.0)
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, weights=weights, init="random")
    got = np.sort(model.components.each.distribution.loc[:, 0])
    np.testing.assert_allclose(got, np.sort(xs[np.array([3, 50, 77]), 0]), rtol=1e-12)


def test_given_starts_are_used(xs):
    centers = xs[:3] + 0.5
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, init=centers)
    np.testing.assert_array_equal(model.components.each.distribution.loc, centers)


@pytest.mark.thorough
def test_a_sparse_dirichlet_prior_empties_superfluous_components(xs):
    def emptied(concentration):
        build = lambda key: pml.mixtures.gaussian_mixture(
            key, xs, 8, "spherical", estimate="bayes", concentration=concentration
        )
        fits = jax.jit(jax.vmap(lambda key: pml.fit(build(key), xs, max_steps=500)))(jr.split(jr.key(0), 8))
        shares = fits.model.weights.posterior.concentration
        return int(jnp.sum(shares / jnp.sum(shares, axis=1, keepdims=True) < 1e-3))

    assert emptied(1e-3) >= 8 > 0 == emptied(10.0)


def test_a_student_t_mixture_shrugs_off_outliers():
    inliers = jr.normal(jr.key(0), (100, 2))
    xs = jnp.concatenate([inliers, jnp.array([[60.0, 60.0], [-80.0, 50.0], [70.0, -70.0]])])
    robust = pml.fit(pml.mixtures.student_t_mixture(jr.key(1), xs, 1), xs, max_steps=500).model
    plain = pml.fit(pml.mixtures.gaussian_mixture(jr.key(1), xs, 1), xs).model
    error = lambda m: float(jnp.linalg.norm(m.mean() - inliers.mean(0)))
    assert error(robust) < 0.1 < error(plain)
    assert robust.components.each.distribution.df[0] < 4


@pytest.mark.thorough
def test_student_t_recovers_its_degrees_of_freedom():
    truth = pml.distributions.MultivariateStudentT(4.0, jnp.zeros(2), jnp.eye(2))
    xs = jax.vmap(truth.sample)(jr.split(jr.key(0), 5000))
    model = pml.fit(pml.mixtures.student_t_mixture(jr.key(1), xs, 1), xs, max_steps=500).model
    assert abs(float(model.components.each.distribution.df[0]) - 4) < 0.5  # three standard errors at n = 5000


def test_a_mixture_with_a_fixed_background():
    """One leaf of a stack cannot be frozen alone, but the weights can: Frozen leaves do not move."""
    xs = _data()
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3)
    model = pml.mixtures.Mixture(pml.Frozen(model.weights), model.components)
    result = pml.fit(model, xs, max_steps=20)
    np.testing.assert_array_equal(result.model.weights.point().probs, np.full(3, 1 / 3))


# ------------------------------------------------------------------ choosing


def test_the_selection_table_finds_three(xs):
    train, test = xs[:90], xs[90:]
    table = pml.selection.gaussian_mixture_table(jr.key(0), train, [2, 3], ["full"], num_restarts=4, test_data=test)
    assert len(table.rows) == 2
    assert table.best("held_out").settings == {"num_components": 3, "covariance": "full"}
    assert all(row.status in ("converged", "max_steps", "degenerate") for row in table.rows)
    text = str(table)
    assert text.count("\n") == 2
    assert "bic" in text
    assert np.isnan(table.rows[0].evidence)
    row = table.rows[1]
    np.testing.assert_allclose(row.bic, -2 * row.log_likelihood + row.num_parameters * np.log(90), rtol=1e-9)
    assert row.icl >= row.bic


@pytest.mark.thorough
def test_variational_evidence_prefers_the_truth(xs):
    table = pml.selection.gaussian_mixture_table(
        jr.key(0), xs, [2, 3, 4], ["full"], num_restarts=4, estimate="bayes", max_steps=500
    )
    assert table.best("evidence").settings["num_components"] == 3


def test_icl_adds_the_entropy_of_the_assignments(fitted, xs):
    shares, _ = fitted.responsibilities(xs)
    entropy = -np.sum(np.asarray(shares) * np.log(np.maximum(np.asarray(shares), 1e-300)))
    np.testing.assert_allclose(pml.selection.icl(fitted, xs), pml.selection.bic(fitted, xs) + 2 * entropy, rtol=1e-10)


# ------------------------------------------------------------------ bad input: a clear error or an honest status


def _finite(model):
    return all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(model))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (jnp.zeros((0, 2)), "empty"),
        (jnp.zeros(5), r"wanted \(n, d\)"),
        (jnp.zeros((5, 2, 2)), r"wanted \(n, d\)"),
        (jnp.zeros((2, 2)), "only 2 units"),
        (jnp.full((5, 2), jnp.inf), "infinite"),
    ],
)
def test_builders_name_what_is_wrong(bad, message):
    with pytest.raises(ValueError, match=message):
        pml.mixtures.gaussian_mixture(jr.key(0), bad, 3)


def test_builders_check_their_words(xs):
    with pytest.raises(ValueError, match="covariance must be"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, "diag")
    with pytest.raises(ValueError, match="estimate must be"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, estimate="mle")
    with pytest.raises(ValueError, match="init must be"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, init="kmeans")
    with pytest.raises(ValueError, match="init has shape"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, init=jnp.zeros((3, 3)))
    with pytest.raises(ValueError, match="num_components"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 0)
    with pytest.raises(ValueError, match="all zero"):
        pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, weights=jnp.zeros(120))
    with pytest.raises(ValueError, match="whole numbers"):
        pml.mixtures.poisson_mixture(jr.key(0), -jnp.ones((5, 2)), 2)
    with pytest.raises(ValueError, match="whole numbers"):
        pml.mixtures.multinomial_mixture(jr.key(0), jnp.full((5, 2), 0.5), 2)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        pml.mixtures.bernoulli_mixture(jr.key(0), jnp.full((5, 2), 2.0), 2)
    with pytest.raises(ValueError, match=r"labels 0\.\.2"):
        pml.mixtures.categorical_mixture(jr.key(0), jnp.full((5, 2), 3), 2, 3)
    with pytest.raises(ValueError, match="labels"):
        pml.mixtures.categorical_mixture(jr.key(0), jnp.zeros((5, 2)), 2, 3)


def test_counts_are_checked_again_at_the_fit():
    model = pml.mixtures.poisson_mixture(jr.key(0), jnp.asarray([[1.0], [5.0], [9.0]]), 2)
    with pytest.raises(ValueError, match="whole numbers"):
        pml.fit(model, jnp.asarray([[1.5], [2.0]]))


@pytest.mark.parametrize("covariance", GAUSSIAN)
def test_one_sample(covariance):
    x = jnp.array([[1.0, 2.0]], jnp.float32)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), x, 1, covariance), x)
    assert result.status == pml.Status.degenerate
    assert _finite(result.model)
    np.testing.assert_allclose(result.model.mean(), x[0], rtol=1e-6)


@pytest.mark.parametrize("covariance", GAUSSIAN)
def test_a_constant_column(covariance):
    xs = _data(60, jnp.float32).at[:, 1].set(7.0)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, covariance), xs, max_steps=50)
    assert result.status == (pml.Status.converged if covariance == "spherical" else pml.Status.degenerate)
    assert _finite(result.model)
    np.testing.assert_allclose(result.model.mean()[1], 7.0, rtol=1e-5)


@pytest.mark.parametrize("estimate", ["ml", "map", pytest.param("bayes", marks=pytest.mark.thorough)])
def test_duplicated_points(estimate):
    xs = jnp.concatenate([jnp.tile(jnp.array([[1.0, 1.0]]), (10, 1)), jnp.tile(jnp.array([[5.0, 2.0]]), (10, 1))])
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 2, estimate=estimate), xs)
    assert result.status == (pml.Status.degenerate if estimate == "ml" else pml.Status.converged)
    assert _finite(result.model)


def test_identical_points_cannot_be_separated():
    xs = jnp.ones((10, 2))
    with pytest.raises(ValueError, match="identical"):
        pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 2), xs)
    assert pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 1), xs).status == pml.Status.degenerate


def test_one_feature():
    xs = _data()[:, :1]
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 2), xs)
    assert result.status in (pml.Status.converged, pml.Status.max_steps)


def test_as_many_components_as_units():
    xs = _data(4)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 4, init="random"), xs)
    assert result.status == pml.Status.degenerate
    assert _finite(result.model)


def test_rows_and_columns_of_nan():
    xs = _data().at[5].set(jnp.nan)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), xs, 3), xs, max_steps=50)
    dropped = jnp.delete(xs, 5, axis=0)
    start = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3)
    without = pml.fit(start, dropped, max_steps=200, rtol=1e-13)
    assert _finite(result.model)
    with_row = pml.fit(start, xs, max_steps=200, rtol=1e-13)
    np.testing.assert_allclose(with_row.final_objective, without.final_objective, rtol=1e-8)
    empty = _data().at[:, 1].set(jnp.nan)
    result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(0), empty, 2), empty, max_steps=50)
    assert _finite(result.model)


def test_nothing_of_this_raises_inside_jit():
    bad = _data().at[0, 0].set(jnp.inf)
    start = pml.mixtures.gaussian_mixture(jr.key(0), _data(), 2)
    result = jax.jit(lambda x: pml.fit(start, x))(bad)
    assert result.status == pml.Status.nonfinite
    assert _finite(result.model)

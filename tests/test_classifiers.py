"""Classifiers: closed forms, labels and features that are missing, discriminative training, posteriors, bad input."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.datasets import load_iris, load_wine

import probml_jax as pml

C = pml.classifiers


def _data(n=60, d=3, c=3, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d))) + 1.5 * rng.normal(size=(c, d))[y]
    return jnp.asarray(x, dtype), jnp.asarray(y)


def _counts(n=60, d=4, c=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    return rng.poisson(1 + 3 * rng.uniform(size=(c, d))[y]), jnp.asarray(y)


def _members():
    x, y = _data()
    counts, labels = _counts()
    bits = jnp.asarray((counts > 2).astype(float))
    return {
        "lda": (C.lda(x, y), x, y),
        "qda": (C.qda(x, y), x, y),
        "gaussian_naive_bayes": (C.gaussian_naive_bayes(x, y), x, y),
        "spherical": (C.gaussian_classifier(x, y, covariance="spherical"), x, y),
        "qda_map": (C.qda(x, y, estimate="map", smoothing=1.0), x, y),
        "qda_bayes": (C.qda(x, y, estimate="bayes"), x, y),
        "lda_bayes": (C.lda(x, y, estimate="bayes"), x, y),
        "bernoulli": (C.bernoulli_naive_bayes(bits, labels), bits, labels),
        "bernoulli_bayes": (C.bernoulli_naive_bayes(bits, labels, estimate="bayes"), bits, labels),
        "multinomial": (C.multinomial_naive_bayes(counts.astype(float), labels), jnp.asarray(counts, float), labels),
        "poisson": (C.poisson_naive_bayes(counts.astype(float), labels), jnp.asarray(counts, float), labels),
        "categorical": (C.categorical_naive_bayes(np.minimum(counts, 4), labels), jnp.minimum(counts, 4), labels),
        "table": (C.table_classifier(counts[:, 0], labels, smoothing=0.5), jnp.asarray(counts[:, 0]), labels),
        "mixed": (
            C.mixed_naive_bayes((x, np.minimum(counts, 3), bits), y, ("gaussian", "categorical", "bernoulli")),
            (x, jnp.minimum(counts, 3), bits),
            y,
        ),
    }


MEMBERS = """lda qda gaussian_naive_bayes spherical qda_map qda_bayes lda_bayes bernoulli bernoulli_bayes multinomial
poisson categorical table mixed""".split()
# one of each kind at every run, the others in `make thorough`
QUICK = "lda qda_bayes gaussian_naive_bayes mixed".split()
every_member = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in MEMBERS]
)
_cache = {}


def _member(name):
    if not _cache:
        _cache.update(_members())
    return _cache[name]


# ---------------------------------------------------------------------------------------------- laws


@every_member
def test_a_builder_is_where_em_comes_to_rest(name):
    """Labels are known and nothing is missing: one step of EM from the closed form changes nothing."""
    model, xs, ys = _member(name)
    result = pml.fit(model, (xs, ys), pml.EM(), max_steps=2)
    moved = jax.tree_util.tree_map(lambda a, b: np.max(np.abs(a - b), initial=0), result.model, model)
    assert max(jax.tree_util.tree_leaves(moved)) < 1e-8
    assert float(result.objective[1]) == pytest.approx(float(result.objective[0]), rel=1e-10)


@every_member
def test_probabilities_follow_from_the_joint(name):
    model, xs, _ = _member(name)
    first = jax.tree_util.tree_map(lambda a: a[0], xs)
    probs = model.probs(first)
    np.testing.assert_allclose(jnp.sum(probs), 1, rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(model.log_joint(first) - model.log_evidence(first)), probs, rtol=1e-10)
    assert int(model.predict(first)) == int(jnp.argmax(probs))
    swapped = jnp.ones((3, 3)) - jnp.eye(3)[jnp.array([1, 2, 0])]  # action a is right for class a+1
    assert int(model.predict(first, cost=swapped)) == (int(jnp.argmax(probs)) - 1) % 3
    if name != "multinomial":  # a document has no length of its own
        x, y = model.sample(jr.key(0), label=2)
        assert int(y) == 2
        assert jax.tree_util.tree_structure(x) == jax.tree_util.tree_structure(first)
    together = jax.jit(jax.vmap(model.log_probs))(xs)
    np.testing.assert_allclose(jnp.exp(together[0]), probs, rtol=1e-9)


def test_an_unknown_label_is_summed_out_and_labels_select():
    model, xs, _ = _member("qda")
    each = jnp.stack([model.log_prob((xs[0], jnp.array(k))) for k in range(3)])
    np.testing.assert_allclose(model.log_prob((xs[0], jnp.array(-1))), jax.nn.logsumexp(each), rtol=1e-12)
    np.testing.assert_allclose(model.log_evidence(xs[0]), jax.nn.logsumexp(each), rtol=1e-12)


def test_statistics_of_parts_add_up_and_weights_are_repetitions():
    model, xs, ys = _member("lda")
    whole = model.e_step((xs, ys), jnp.ones(60))[0]
    parts = [model.e_step((xs[s], ys[s]), jnp.ones(30))[0] for s in (slice(0, 30), slice(30, 60))]
    streamed = model.m_step(jax.tree_util.tree_map(jnp.add, *parts))
    for a, b in zip(*map(jax.tree_util.tree_leaves, (streamed, model.m_step(whole))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    times = np.arange(60) % 3
    repeated = C.qda(jnp.repeat(xs, times, axis=0), jnp.repeat(ys[jnp.array(_shift(60))], times))
    weighted = C.qda(xs, ys[jnp.array(_shift(60))], weights=times.astype(float))
    for a, b in zip(*map(jax.tree_util.tree_leaves, (repeated, weighted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)  # floors are relative to variances, to 1e-6 of them


def _shift(n):
    return (np.arange(n) + np.arange(n) // 3) % n


def test_builders_work_under_jit_and_vmap():
    xs, ys = _data()
    labels = jnp.stack([ys, (ys + 1) % 3])
    means = jax.jit(jax.vmap(lambda y: C.qda(xs, y, num_classes=3).class_conditionals.each.distribution.loc))(labels)
    np.testing.assert_allclose(means[0], C.qda(xs, ys).class_conditionals.each.distribution.loc, rtol=1e-10)
    np.testing.assert_allclose(means[1], jnp.roll(means[0], 1, axis=0), rtol=1e-10)


def test_blocks_are_vmap():
    model, xs, _ = _member("qda")
    for size in (1, 7, 59, 60, 100, None):
        np.testing.assert_array_equal(pml.in_blocks(model.predict, xs, size), jax.vmap(model.predict)(xs))
    with pytest.raises(ValueError, match="num_units"):
        pml.in_blocks(model.predict, xs, 0)


def test_float32_far_from_the_origin():
    xs, ys = _data()
    near, far = C.qda(xs, ys), C.qda((xs + 5000).astype(jnp.float32), ys)
    covariance = lambda model: model.class_conditionals.each.distribution.covariance
    assert covariance(far).dtype == jnp.float32
    # what rounding at 5000 (5e-4) does to data of unit spread
    np.testing.assert_allclose(covariance(far), covariance(near), atol=5e-3)
    same = jax.vmap(far.predict)((xs + 5000).astype(jnp.float32)) == jax.vmap(near.predict)(xs)
    assert int(jnp.sum(~same)) == 0


# ---------------------------------------------------------------------------------------------- missing


def test_semi_supervised_em_learns_from_all_and_climbs():
    xs, ys = _data(300)
    hidden = jnp.where(jr.uniform(jr.key(0), ys.shape) < 0.8, -1, ys)
    holes = jnp.where(jr.uniform(jr.key(1), xs.shape) < 0.1, jnp.nan, xs)
    few = hidden >= 0
    start = C.qda(xs[few], ys[few], num_classes=3)
    result = pml.fit(start, (holes, hidden), pml.EM(), max_steps=60)
    trace = np.asarray(result.objective)[: int(result.num_steps) + 1]
    assert np.all(np.diff(trace) > -1e-8 * np.abs(trace[1:]))
    accuracy = lambda model: float(jnp.mean(jax.vmap(model.predict)(xs) == ys))
    assert accuracy(result.model) >= accuracy(start) - 0.02
    slope = jax.grad(lambda m: pml.objective(m, (holes, hidden), jnp.ones(300)))(
        pml.fit(result.model, (holes, hidden), pml.EM(), max_steps=500, rtol=1e-13).model
    )
    locs = slope.class_conditionals.each.distribution.loc
    np.testing.assert_allclose(locs, 0, atol=1e-3)


def test_naive_bayes_with_missing_entries_is_exact():
    xs, ys = _data()
    holes = jnp.where(jr.uniform(jr.key(1), xs.shape) < 0.3, jnp.nan, xs)
    found = C.gaussian_naive_bayes(holes, ys).class_conditionals.each.distribution
    rows = [np.asarray(holes)[np.asarray(ys) == k] for k in range(3)]
    np.testing.assert_allclose(found.loc, [np.nanmean(r, axis=0) for r in rows], rtol=1e-10)
    np.testing.assert_allclose(found.scale, [np.nanstd(r, axis=0) for r in rows], rtol=1e-10)


def test_unlabelled_rows_do_not_count_in_builders():
    xs, ys = _data()
    some = jnp.concatenate([ys, jnp.full(5, -1)])
    more = jnp.concatenate([xs, 100 * jnp.ones((5, 3))])
    locs = lambda model: model.class_conditionals.each.distribution.loc
    np.testing.assert_allclose(locs(C.qda(more, some)), locs(C.qda(xs, ys)), rtol=1e-10)


# ---------------------------------------------------------------------------------------------- Gaussian geometry


@pytest.mark.parametrize("covariance", ["tied", "diagonal"])
@pytest.mark.parametrize("missing", [False, True])
def test_rows_in_any_order_and_many_blocks(covariance, missing):
    """Weighted moments of every class by NumPy, with unlabelled rows between; a missing entry counts nowhere."""
    rng = np.random.default_rng(0)
    n, d, c = 2_500, 64, 3
    ys, weights = rng.integers(-1, c, n), rng.uniform(0.1, 2, n)
    xs = rng.normal(size=(n, d)) + 50 * rng.normal(size=(c, d))[ys]
    if missing:
        xs[ys == -1] = np.nan
        xs[rng.uniform(size=n) < 0.1, 0] = np.nan
    if missing and covariance == "tied":
        xs = np.where(np.isnan(xs) & (ys >= 0)[:, None], 0.0, xs)  # else it is a start, not the estimate
    found = C.gaussian_classifier(jnp.asarray(xs), jnp.asarray(ys), c, covariance, weights=weights, floor=1e-12)
    shares = [np.where(np.isnan(xs), 0, ((ys == k) * weights)[:, None]) for k in range(c)]
    means = np.stack([np.nansum(s * xs, 0) / s.sum(0) for s in shares])
    members = found.class_conditionals.each.distribution
    np.testing.assert_allclose(members.loc, means, rtol=1e-12)
    if covariance == "diagonal":
        variances = [np.nansum(s * (xs - m) ** 2, 0) / s.sum(0) for s, m in zip(shares, means, strict=True)]
        np.testing.assert_allclose(members.scale**2, np.stack(variances), rtol=1e-11)
    else:
        own = np.where((ys >= 0)[:, None], xs - means[ys], 0)
        share = np.where(ys >= 0, weights, 0)
        np.testing.assert_allclose(members.covariance, (share[:, None] * own).T @ own / share.sum(), atol=1e-12)
    counts = np.array([weights[ys == k].sum() for k in range(c)])
    np.testing.assert_allclose(found.prior.distribution.probs, counts / counts.sum(), rtol=1e-12)


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical"])
def test_the_boundary_is_where_two_classes_are_equal(covariance):
    xs, ys = _data()
    model = C.gaussian_classifier(xs, ys, covariance=covariance, class_prior=[0.2, 0.5, 0.3])
    boundary = model.decision_boundary(0, 2)
    for x in xs[:5]:
        log_probs = model.log_probs(x)
        np.testing.assert_allclose(boundary(x), log_probs[0] - log_probs[2], rtol=1e-9, atol=1e-9)
    if covariance == "tied":
        np.testing.assert_allclose(boundary.a, 0, atol=1e-12)


@pytest.mark.parametrize("case", ["near", "far apart", "missing"])
def test_lda_predicts_by_linear_scores_what_its_densities_say(case):
    """Far from the origin in float32: about a common centre, unless a class is so far away that it would cancel."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    centers = 5000 + 1.5 * rng.normal(size=(3, 4))
    centers[2] += 3e4 if case == "far apart" else 0
    x = (centers[y] + rng.normal(size=(600, 4)) @ (np.eye(4) + 0.3 * rng.normal(size=(4, 4)))).astype(np.float32)
    model = C.lda(x, y)
    asked = (centers[y] + 3 * rng.normal(size=(600, 4))).astype(np.float32)
    if case == "missing":
        asked[::5, 1] = np.nan
    log_probs = np.asarray(jax.vmap(model.log_probs)(asked))
    best = np.sort(log_probs, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-3
    assert clear.mean() > 0.9
    found = np.asarray(jax.vmap(model.predict)(asked))
    np.testing.assert_array_equal(found[clear], np.argmax(log_probs, axis=1)[clear])


def test_lda_is_a_softmax():
    model, xs, _ = _member("lda")
    soft = model.to_softmax()
    np.testing.assert_allclose(jax.vmap(soft.probs)(xs), jax.vmap(model.probs)(xs), rtol=1e-9)
    with pytest.raises(TypeError, match="share their covariance"):
        _member("qda")[0].to_softmax()
    with pytest.raises(TypeError, match="no Gaussian"):
        _member("poisson")[0].decision_boundary(0, 1)


def test_fully_bayesian_predictions_are_averaged():
    """Student-t predictives: the posterior predictive of each class, by its conjugate prior."""
    model, xs, ys = _member("qda_bayes")
    prior = jax.tree_util.tree_map(lambda a: a[0], model.class_conditionals.each.prior)
    scores = [prior.update(xs[ys == k]).predictive().log_prob(xs[1]) for k in range(3)]
    np.testing.assert_allclose(model.probs(xs[1]), jax.nn.softmax(jnp.stack(scores)), rtol=1e-8)


# ---------------------------------------------------------------------------------------------- regressions


def test_regressions_reach_a_point_without_slope_by_every_method():
    xs, ys = _data()
    start = C.softmax_regression(3, 3, l2=0.1)
    results = [pml.fit(start, (xs, ys), m, max_steps=300, rtol=1e-13) for m in (pml.Newton(), pml.LBFGS())]
    np.testing.assert_allclose(results[0].model.weights, results[1].model.weights, atol=1e-5)
    slope = jax.grad(lambda m: pml.objective(m, (xs, ys), jnp.ones(60)))(results[0].model)
    np.testing.assert_allclose(slope.weights, 0, atol=1e-7)
    assert int(results[0].num_steps) < 15
    unseen = ys.at[:6].set(-1)
    some = pml.fit(start, (xs, unseen), pml.Newton(), rtol=1e-13).model
    rest = pml.fit(start, (xs[6:], ys[6:]), pml.Newton(), rtol=1e-13).model
    np.testing.assert_allclose(some.weights, rest.weights, atol=1e-7)


def test_newton_climbs_with_conjugate_gradients_and_through_indefinite_curvature():
    rng = np.random.default_rng(0)
    xs = jnp.asarray(rng.normal(size=(200, 40)))
    ys = jnp.asarray(rng.integers(0, 3, size=200))
    result = pml.fit(C.softmax_regression(40, 3, l2=1.0), (xs, ys), pml.Newton(), rtol=1e-12)  # 123 parameters
    slope = jax.grad(lambda m: pml.objective(m, (xs, ys), jnp.ones(200)))(result.model)
    np.testing.assert_allclose(slope.weights, 0, atol=1e-4)
    assert pml.Status(int(result.status)) == pml.Status.converged
    table = jnp.concatenate([xs[:, :2], 4 + xs[:, 2:4]])
    start = pml.mixtures.gaussian_mixture(jr.key(0), table, num_components=2, covariance="diagonal")
    newton = pml.fit(start, table, pml.Newton(), max_steps=60)  # a likelihood that is not concave
    trace = np.asarray(newton.objective)[: int(newton.num_steps) + 1]
    assert np.all(np.diff(trace) >= -1e-9 * np.abs(trace[1:]))
    np.testing.assert_allclose(newton.final_objective, pml.fit(start, table, max_steps=500).final_objective, rtol=1e-6)
    with pytest.raises(ValueError, match="max_inner"):
        pml.Newton(max_inner=0)


def test_separable_data_are_reported():
    xs = jnp.concatenate([-1 - jr.uniform(jr.key(0), (20, 2)), 1 + jr.uniform(jr.key(1), (20, 2))])
    ys = jnp.repeat(jnp.arange(2), 20)
    for start in (C.softmax_regression(2, 2), C.logistic_regression(2)):
        result = pml.fit(start, (xs, ys), pml.Newton())
        assert pml.Status(int(result.status)) == pml.Status.degenerate
        assert bool(jnp.all(jnp.isfinite(result.model.weights)))
    held = pml.fit(C.logistic_regression(2, l2=0.1), (xs, ys), pml.Newton())
    assert pml.Status(int(held.status)) == pml.Status.converged


@pytest.mark.parametrize(
    "name",
    ["lda", "categorical", *[pytest.param(n, marks=pytest.mark.thorough) for n in ("qda", "gaussian_naive_bayes")]],
)
def test_conditional_training_beats_the_joint_fit_where_it_counts(name):
    model, xs, ys = _member(name)
    start = C.conditional(model)
    result = pml.fit(start, (xs, ys), pml.LBFGS(), max_steps=30)
    before = float(pml.objective(start, (xs, ys), jnp.ones(60)))
    assert float(result.final_objective) >= before
    assert type(result.model.joint) is type(model)
    with pytest.raises(ValueError, match="no label"):
        pml.fit(start, (xs, jnp.full(60, -1)), pml.LBFGS())


def test_conditional_lda_is_the_softmax_regression():
    xs, ys = _data()
    joint = pml.fit(C.conditional(C.lda(xs, ys)), (xs, ys), pml.LBFGS(), max_steps=500, rtol=1e-12)
    plain = pml.fit(C.softmax_regression(3, 3), (xs, ys), pml.Newton(), rtol=1e-13)
    np.testing.assert_allclose(joint.final_objective, plain.final_objective, rtol=1e-6)


def test_gradients_of_scores():
    xs, ys = _data(12)
    score = lambda w, b: pml.objective(C.SoftmaxRegression(jnp.asarray(w), jnp.asarray(b), 0.3), (xs, ys), jnp.ones(12))
    check_grads(score, (0.1 * jnp.ones((3, 3)), jnp.zeros(3)), order=2, rtol=1e-5)
    weighted = lambda w: pml.fit(C.logistic_regression(3, l2=1.0), (xs, ys % 2), pml.Newton(), weights=w, rtol=1e-14)
    check_grads(lambda w: weighted(jnp.asarray(w)).model.weights, (jnp.ones(12),), order=1, modes=["rev"], rtol=1e-4)


# ---------------------------------------------------------------------------------------------- posteriors


def test_laplace_is_close_to_the_integral():
    """One weight: the averaged predictive and the evidence against quadrature of the true posterior."""
    xs, ys = jnp.asarray(np.random.default_rng(0).normal(size=(40, 1))), jnp.asarray(np.arange(40) % 2)
    xs = xs + 0.7 * (2 * ys - 1)[:, None]
    mode = pml.fit(C.logistic_regression(1, l2=1.0), (xs, ys), pml.Newton(), rtol=1e-14).model
    posterior = C.laplace(mode, (xs, ys))
    grid = jnp.linspace(-6, 6, 241)
    make = lambda w, b: C.LogisticRegression(jnp.stack([w]), b, 1.0)
    log_joint = jax.vmap(lambda w: jax.vmap(lambda b: pml.objective(make(w, b), (xs, ys), jnp.ones(40)))(grid))(grid)
    cell = (grid[1] - grid[0]) ** 2
    evidence = jax.nn.logsumexp(log_joint) + jnp.log(cell) - 0.5 * jnp.log(2 * jnp.pi)
    np.testing.assert_allclose(posterior.log_evidence, evidence, atol=0.1)  # Laplace's own error at n = 40
    mass = jax.nn.softmax(log_joint.ravel())
    point = jnp.array([1.5])
    each = jax.vmap(lambda w: jax.vmap(lambda b: make(w, b).probs(point)[1])(grid))(grid)
    np.testing.assert_allclose(posterior.probs(point)[1], mass @ each.ravel(), atol=0.02)  # the same
    gaussian = pml.distributions.MultivariateNormal(jnp.stack([mode.weights[0], mode.intercept]), posterior.covariance)
    share = jax.vmap(lambda w: jax.vmap(lambda b: jnp.exp(gaussian.log_prob(jnp.stack([w, b]))))(grid))(grid) * cell
    np.testing.assert_allclose(posterior.probs(point)[1], jnp.sum(share * each), rtol=1e-6)
    draws = jax.vmap(lambda key: posterior.sample(key).weights[0])(jr.split(jr.key(0), 4000))
    np.testing.assert_allclose(jnp.std(draws), jnp.sqrt(posterior.covariance[0, 0]), rtol=0.05)  # 4,000 draws
    assert posterior.probs(jnp.array([50.0]))[1] < mode.probs(jnp.array([50.0]))[1]


def test_laplace_of_a_softmax_ignores_the_common_shift():
    xs, ys = _data()
    mode = pml.fit(C.softmax_regression(3, 3, l2=0.5), (xs, ys), pml.Newton(), rtol=1e-14).model
    posterior = C.laplace(mode, (xs, ys))
    probs = posterior.probs(xs[0])
    np.testing.assert_allclose(jnp.sum(probs), 1, rtol=1e-10)
    draws = jax.vmap(lambda key: posterior.sample(key).probs(xs[0]))(jr.split(jr.key(0), 20_000))
    np.testing.assert_allclose(probs, jnp.mean(draws, axis=0), atol=0.01)
    assert bool(jnp.all(jnp.isfinite(posterior.covariance)))


# ---------------------------------------------------------------------------------------------- classes that are models


def test_mixtures_hmms_and_kernel_densities_as_classes():
    rng = np.random.default_rng(0)
    ys = jnp.asarray(np.arange(120) % 2)
    ring = rng.normal(size=(120, 2))
    ring = ring / np.linalg.norm(ring, axis=1, keepdims=True) * (1 + 2 * np.asarray(ys))[:, None]
    xs = jnp.asarray(ring + 0.1 * rng.normal(size=(120, 2)))
    start = C.mixture_classifier(jr.key(0), xs, ys, num_components=4)
    result = pml.fit(start, (xs, ys), pml.EM(), max_steps=30)
    accuracy = lambda model: float(jnp.mean(jax.vmap(model.predict)(xs) == ys))
    assert result.final_objective > result.objective[0]
    assert accuracy(result.model) > 0.97
    kde = C.kde_classifier(xs, ys)
    assert accuracy(kde) > 0.97
    mine = pml.density.KernelDensity.from_data(xs[ys == 1], "scott")
    score = kde.class_conditionals.member(1).predictive().log_prob(xs[0])
    np.testing.assert_allclose(score, mine.log_prob(xs[0]), rtol=1e-10)
    assert kde.sample(jr.key(0))[0].shape == (2,)
    steps = jnp.asarray(
        np.cumsum(rng.normal(size=(20, 15, 1)) * np.where(np.arange(20) % 2, 0.2, 2.0)[:, None, None], 1)
    )
    lengths = jnp.asarray(10 + np.arange(20) % 6)
    labels = jnp.asarray(np.arange(20) % 2)
    walks = C.hmm_classifier(jr.key(0), steps, labels, lengths=lengths)
    learned = pml.fit(walks, ((steps, lengths), labels), pml.EM(), max_steps=5)
    assert learned.final_objective > learned.objective[0]
    right = jax.vmap(lambda x, n: learned.model.predict((x, n)))(steps, lengths) == labels
    assert float(jnp.mean(right)) > 0.8


# ---------------------------------------------------------------------------------------------- bad input


def test_bad_input_is_named():
    xs, ys = _data()
    model = C.qda(xs, ys)
    alone = ys.at[jnp.flatnonzero(ys == 2)[1:]].set(0)
    cases = [
        (lambda: C.lda(xs, ys.at[0].set(3), num_classes=3), "labels 0..2"),
        (lambda: C.lda(xs, ys.at[0].set(-2)), "labels 0"),
        (lambda: C.lda(xs, jnp.zeros(60, int)), "one class only"),
        (lambda: C.lda(xs, ys[:5]), "60 events and ys 5"),
        (lambda: C.lda(xs[:, 0], ys), "wanted \\(n, d\\)"),
        (lambda: C.lda(xs, ys.astype(float)), "whole labels"),
        (lambda: C.qda(xs, alone), "class 2 has 1 event"),
        (lambda: C.qda(xs, ys, num_classes=4), "class 3 has 0 event"),
        (lambda: C.lda(xs[:0], ys[:0]), "empty"),
        (lambda: C.lda(xs, ys, class_prior=[0.5, 0.2, 0.2]), "sum to one"),
        (lambda: C.lda(xs, ys, class_prior=[0.5, 0.5]), "class_prior has shape"),
        (lambda: C.qda(xs, ys, shrinkage=1.5), "shrinkage must lie"),
        (lambda: C.qda(xs, ys, shrinkage=0.5, estimate="map"), "estimate='ml'"),
        (lambda: C.gaussian_classifier(xs, ys, covariance="round"), "covariance must be"),
        (lambda: C.qda(xs, ys, estimate="guess"), "estimate must be"),
        (lambda: C.qda(xs.at[0, 0].set(jnp.inf), ys), "infinite"),
        (lambda: C.bernoulli_naive_bayes(xs, ys), "must lie in \\[0, 1\\]"),
        (lambda: C.bernoulli_naive_bayes(xs > 0, ys, smoothing=-1.0), "smoothing must be"),
        (lambda: C.multinomial_naive_bayes(xs, ys), "counts, zero or more"),
        (lambda: C.categorical_naive_bayes(xs, ys), "whole labels"),
        (lambda: C.mixed_naive_bayes((xs,), ys, ("round",)), "kinds must be of"),
        (lambda: model.predict(xs[0], cost=jnp.ones((2, 2))), "cost"),
        (lambda: pml.fit(model, xs, pml.EM()), "pair"),
        (lambda: pml.fit(model, (xs, ys.at[0].set(7)), pml.EM()), "labels 0..2"),
        (lambda: C.softmax_regression(3, 1), "two classes"),
        (lambda: C.softmax_regression(3, 3, l2=-1.0), "l2 must be"),
        (lambda: pml.fit(C.softmax_regression(2, 3), (xs, ys), pml.Newton()), "x has shape"),
        (lambda: pml.fit(C.softmax_regression(3, 3), (xs.at[0, 0].set(jnp.nan), ys), pml.Newton()), "x has NaN"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="joint model"):
        C.conditional(C.softmax_regression(3, 3))


# ---------------------------------------------------------------------------- what users tripped over


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shift", [0.0, 100.0, 1000.0])
def test_origin_and_units_of_features_do_not_matter(dtype, shift):
    """The intercept carries no penalty, so moved columns have the same optimum; methods must find it."""
    x, y = load_wine(return_X_y=True)
    here = jnp.asarray(x + shift, dtype), jnp.asarray(y)
    start = pml.classifiers.softmax_regression(13, 3, l2=1.0, dtype=dtype)
    # the same on standardized columns, where nothing is far: minus 11.07796 for plain wine
    for method in (pml.Newton(), pml.LBFGS()):
        found = pml.fit(start, here, method, max_steps=300).raise_if_failed()
        np.testing.assert_allclose(found.final_objective, -11.0779581, rtol=1e-6 if dtype == "float64" else 1e-5)
        logs = jax.vmap(found.model.log_probs)(here[0])
        assert found.model.weights.dtype == jnp.dtype(dtype)
        # the model that came back scores what was reported; in float32 moved columns cost it digits
        score = jnp.sum(jnp.take_along_axis(logs, here[1][:, None], 1)) - 0.5 * jnp.sum(found.model.weights**2)
        np.testing.assert_allclose(score, found.final_objective, rtol=1e-9 if dtype == "float64" else 1e-4)


def test_gradients_go_through_a_softmax_fit():
    """All intercepts may move together: the system of the implicit function theorem is singular, and consistent."""
    x, y = load_iris(return_X_y=True)
    data = jnp.asarray(x), jnp.asarray(y)

    def weight(l2, method):
        start = pml.classifiers.softmax_regression(4, 3, l2=l2)
        return pml.fit(start, data, method, max_steps=500, rtol=1e-12).model.weights[0, 0]

    slope = (weight(1.001, pml.Newton()) - weight(0.999, pml.Newton())) / 0.002
    for method in (pml.Newton(), pml.LBFGS()):
        np.testing.assert_allclose(jax.grad(weight)(1.0, method), slope, rtol=1e-4)


def test_ties_do_not_hide_separable_data():
    x, y = jnp.array([[-1.0], [0.0], [0.0], [1.0]]), jnp.array([0, 0, 1, 1])
    result = pml.fit(pml.classifiers.logistic_regression(1), (x, y), pml.Newton())
    assert pml.Status(int(result.status)) is pml.Status.degenerate
    with pytest.raises(RuntimeError, match="separable"):
        result.raise_if_failed()
    overlapping = pml.fit(pml.classifiers.logistic_regression(1), (x, 1 - y.at[0].set(1)), pml.Newton())
    assert pml.Status(int(overlapping.status)) is pml.Status.converged


def test_a_conditional_model_predicts():
    x, y = load_iris(return_X_y=True)
    data = jnp.asarray(x), jnp.asarray(y)
    model = pml.fit(pml.classifiers.conditional(pml.classifiers.qda(*data)), data, pml.LBFGS(), max_steps=20).model
    np.testing.assert_allclose(model.probs(data[0][70]), model.joint.probs(data[0][70]))
    assert model.predict(data[0][0], 1 - jnp.eye(3)).item() == 0
    with pytest.raises(AttributeError, match="'Conditional' object has no attribute 'log_evidence'"):
        _ = model.log_evidence


def test_classes_of_sequences_are_drawn_and_checked():
    xs = jnp.ones((4, 5, 1)) * jnp.arange(4.0)[:, None, None]
    ys = jnp.array([0, 1, 0, 1])
    model = pml.classifiers.hmm_classifier(jr.key(0), xs, ys)
    (states, drawn), label = model.sample(jr.key(1), label=1, num_steps=3)
    assert states.shape == (3,)
    assert drawn.shape == (3, 1)
    assert label == 1
    with pytest.raises(ValueError, match="longer than the 5 steps"):
        pml.classifiers.hmm_classifier(jr.key(0), xs, ys, lengths=jnp.array([50, 5, 5, 5]))


@pytest.mark.thorough
def test_columns_of_all_kinds_with_posteriors():
    x, y = load_iris(return_X_y=True)
    xs, ys = jnp.asarray(x), jnp.asarray(y)
    tables = xs, (xs > 2).astype(xs.dtype), jnp.round(xs), jnp.round(xs).astype(int), jnp.round(xs)
    kinds = "gaussian", "bernoulli", "poisson", "categorical", "multinomial"
    for estimate in (None, "bayes"):
        options = {"estimate": estimate, "num_categories": 9}
        build = lambda ys, options=options: pml.classifiers.mixed_naive_bayes(tables, ys, kinds, 3, **options)
        model, event = build(ys), tuple(table[70] for table in tables)
        log_prior = jnp.log(model.prior.predictive().probs)
        parts = 0
        for table, kind, entry in zip(tables, kinds, event, strict=True):
            alone = pml.classifiers.mixed_naive_bayes((table,), ys, (kind,), 3, **options)
            parts = parts + alone.log_joint((entry,)) - log_prior
        np.testing.assert_allclose(model.log_joint(event), parts + log_prior, rtol=1e-9)
        np.testing.assert_allclose(jax.jit(build)(ys).log_joint(event), model.log_joint(event), rtol=1e-9)
    with pytest.raises(ValueError, match=r"class 2 has 1 event"):
        pml.classifiers.mixed_naive_bayes((xs[:101],), ys[:101], ("gaussian",), 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m.decision_boundary(0, 5), "second must be 0..2; got 5"),
        (lambda m, x: m.sample(jr.key(0), label=-1), "label must be 0..2; got -1"),
        (lambda m, x: m.log_prob((x[0], 7)), "y must be labels 0..2"),
        (lambda m, x: m.probs(x[0, :3]), r"x has shape \(3,\); wanted \(4,\)"),
        (lambda m, x: pml.classifiers.softmax_regression(4, 3).probs(x[0, :3]), r"x has shape \(3,\); wanted \(4,\)"),
        (lambda m, x: pml.classifiers.lda(x, jnp.arange(150) % 3).predict(x[0, :3]), r"x has shape \(3,\)"),
        (lambda m, x: pml.classifiers.qda(x, jnp.arange(150) % 3, smoothing=-1.0), "smoothing of classes must be zero"),
        (lambda m, x: pml.classifiers.qda(x.at[:, 1].set(jnp.nan), jnp.arange(150) % 3), "column 1 of xs has no obs"),
    ],
)
def test_what_is_wrong_is_named(call, message):
    x, y = load_iris(return_X_y=True)
    model = pml.classifiers.qda(jnp.asarray(x), jnp.asarray(y))
    with pytest.raises(ValueError, match=message):
        call(model, jnp.asarray(x))


def test_lists_and_flags_are_data():
    model = pml.classifiers.qda([[1.0, 2], [2, 3], [4, 4], [3, 6]], [False, False, True, True])
    assert model.num_classes == 2
    np.testing.assert_allclose(model.probs([1.0, 2.0]), model.probs(jnp.array([1.0, 2.0])))
    data = jnp.array([[1.0, 2], [2, 3]]), jnp.array([0, 1])
    np.testing.assert_allclose(pml.objective(model, data), pml.objective(model, data, jnp.ones(2)))


def test_a_column_that_is_constant_within_a_class_is_shrunken_too():
    xs = jr.normal(jr.key(0), (60, 3)).at[:30, 1].set(2.0)
    model = pml.classifiers.qda(xs, jnp.arange(60) // 30, 2, shrinkage="auto")
    assert np.isfinite(model.class_conditionals.each.distribution.covariance).all()
    assert np.isfinite(jax.vmap(model.log_probs)(xs)).all()

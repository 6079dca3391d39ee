"""Decision theory against scikit-learn, quadrature, enumeration and hand computation; bad input in and out of jit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import stats
from sklearn import metrics
from sklearn.calibration import calibration_curve as their_calibration_curve

import probml_jax as pml
from probml_jax import decision

N = 300
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
weighted = pytest.mark.parametrize("weighted", [False, True])


def _binary(dtype, weighted, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, N)
    scores = np.round(rng.normal(size=N) + labels, 1).astype(dtype)  # many ties, and both zeros
    scores[::17] *= -1
    weights = rng.choice([0.0, 0.5, 1.0, 2.5], N).astype(dtype) if weighted else None
    return jnp.asarray(scores), jnp.asarray(labels), None if weights is None else jnp.asarray(weights)


def _multi(dtype, seed=1, c=4):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(c, 0.7), N).astype(dtype)
    probs /= probs.sum(1, keepdims=True)
    return jnp.asarray(probs), jnp.asarray(rng.integers(0, c, N)), jnp.asarray(rng.uniform(0.1, 2, N).astype(dtype))


def close(ours, theirs, dtype):
    ours = jnp.asarray(ours)
    assert ours.dtype == dtype
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


# ------------------------------------------------------------------ curves and areas


@every_dtype
@weighted
def test_curves_are_those_of_scikit_learn(dtype, weighted):
    scores, labels, weights = _binary(dtype, weighted)
    given = {"sample_weight": weights}
    curve = decision.roc_curve(scores, labels, weights)
    fpr, tpr, thresholds = metrics.roc_curve(labels, scores, drop_intermediate=False, **given)
    assert curve.fpr.shape == (N + 1,)
    for ours, theirs in zip(curve[:3], (fpr, tpr, thresholds), strict=True):
        close(ours[curve.distinct], theirs, dtype)
    close(curve.prevalence, np.average(labels, weights=weights), dtype)
    found = decision.precision_recall_curve(scores, labels, weights)
    precision, recall, thresholds = metrics.precision_recall_curve(labels, scores, **given)
    close(found.precision[found.distinct], precision[::-1], dtype)
    close(found.recall[found.distinct], recall[::-1], dtype)
    close(found.thresholds[found.distinct][1:], thresholds[::-1], dtype)
    det = decision.det_curve(scores, labels, weights)
    close(det.fpr, curve.fpr, dtype)
    close(det.fnr, 1 - np.asarray(curve.tpr), dtype)
    fpr, fnr, at = metrics.det_curve(labels, scores, **given)
    ours = {float(t): (float(a), float(b)) for a, b, t, d in zip(*det, strict=True) if d}
    for a, b, t in zip(fpr, fnr, at, strict=True):
        np.testing.assert_allclose(ours[float(t)], (a, b), atol=1e-6)
    close(
        decision.average_precision(scores, labels, weights),
        metrics.average_precision_score(labels, scores, **given),
        dtype,
    )
    close(decision.auc(scores, labels, weights), metrics.roc_auc_score(labels, scores, **given), dtype)
    rates = decision.rates_at(0.5, scores, labels, weights)
    nearest = int(np.flatnonzero(np.asarray(curve.thresholds) >= 0.5)[-1])
    close(rates.fpr, curve.fpr[nearest], dtype)
    close(rates.tpr, curve.tpr[nearest], dtype)


@every_dtype
def test_auc_of_many_classes(dtype):
    probs, labels, weights = _multi(dtype)
    for average in ("macro", "weighted"):
        theirs = metrics.roc_auc_score(labels, probs, multi_class="ovr", average=average, sample_weight=weights)
        close(decision.auc(probs, labels, weights, average=average), theirs, dtype)
        theirs = metrics.roc_auc_score(labels, probs, multi_class="ovo", average=average)
        close(decision.auc(probs, labels, multi_class="one_vs_one", average=average), theirs, dtype)
    theirs = metrics.roc_auc_score(labels, probs, multi_class="ovr", average=None)
    close(decision.auc(probs, labels, average=None), theirs, dtype)
    assert decision.auc(probs, labels, multi_class="one_vs_one", average=None).shape == (4, 4)


def test_extreme_scores_and_unknown_labels():
    scores = jnp.array([-jnp.inf, jnp.inf, 3.0, -0.0, 0.0, 1e30])
    labels = jnp.array([0, 1, -1, 1, 0, -1])
    assert float(decision.auc(scores, labels)) == 0.875  # 3 of 4 pairs right, the zeros tie
    curve = decision.roc_curve(scores, labels)
    assert float(jnp.trapezoid(curve.tpr, curve.fpr)) == 0.875
    half = decision.auc(scores.astype(jnp.float16), labels)
    assert half.dtype == jnp.float16
    assert float(half) == 0.875


def test_weights_are_repetitions_and_models_are_a_vmap():
    scores, labels, _ = _binary("float64", False)
    times = np.random.default_rng(3).integers(0, 3, N)
    repeated = np.repeat(np.asarray(scores), times), np.repeat(np.asarray(labels), times)
    both = decision.auc_interval(scores, labels, jnp.asarray(times, float)), decision.auc_interval(*repeated)
    np.testing.assert_allclose(both[0], both[1], rtol=1e-12)
    many = jnp.stack([scores, -scores, scores**2])
    for function in (decision.auc, decision.roc_curve, decision.average_precision, decision.auc_interval):
        batch = jax.jit(jax.vmap(function, (0, None)))(many, labels)
        alone = [function(row, labels) for row in many]
        stacked = jax.tree_util.tree_map(lambda *a: jnp.stack(a), *alone)
        jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), batch, stacked)


def test_delong_variance_by_its_definition():
    scores, labels, _ = _binary("float64", False)
    s, y = np.asarray(scores), np.asarray(labels)
    pairs = (s[y == 1][:, None] > s[y == 0][None]) + 0.5 * (s[y == 1][:, None] == s[y == 0][None])
    m, n = pairs.shape
    variance = np.var(pairs.mean(1), ddof=1) / m + np.var(pairs.mean(0), ddof=1) / n
    found = decision.auc_interval(scores, labels, level=0.9)
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-12)
    np.testing.assert_allclose(found.auc, pairs.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.high - found.auc, stats.norm.ppf(0.95) * np.sqrt(variance), rtol=1e-10)
    # one positive has no variance
    assert np.isnan(decision.auc_interval(scores, jnp.zeros(N, int).at[0].set(1)).standard_error)


def test_the_interval_covers():
    """Of 400 samples of two Gaussians a standard deviation apart, about 95 % of the intervals hold the true AUC."""
    truth, labels = stats.norm.cdf(1 / np.sqrt(2)), jnp.arange(100) % 2
    draw = lambda key: jr.normal(key, (100,)) + labels
    found = jax.vmap(lambda key: decision.auc_interval(draw(key), labels))(jr.split(jr.key(0), 400))
    assert 0.92 < np.mean((found.low <= truth) & (truth <= found.high)) < 0.98


def test_soft_auc_tends_to_auc_and_differentiates():
    scores, labels, weights = _binary("float64", True)
    hard = decision.auc(scores, labels, weights)
    np.testing.assert_allclose(decision.soft_auc(scores, labels, weights, temperature=1e-4), hard, rtol=1e-6)
    few = slice(0, 20)
    check_grads(lambda s: decision.soft_auc(s, labels[few], weights[few]), (scores[few],), 2, rtol=1e-4)
    # in blocks, and in one piece
    many = jnp.tile(scores, 5), jnp.tile(labels, 5)
    np.testing.assert_allclose(decision.soft_auc(*many), decision.soft_auc(scores, labels), rtol=1e-12)


def test_operating_point_is_the_best_of_all_thresholds():
    scores, labels, weights = _binary("float64", True)
    cost = jnp.array([[0.2, 7.0], [1.0, -0.5]])
    curve = decision.roc_curve(scores, labels, weights)
    best = decision.operating_point(curve, cost)
    risks = [
        float(decision.empirical_risk((scores >= t).astype(int), labels, cost, weights)) for t in np.unique(scores)
    ]
    np.testing.assert_allclose(best.risk, min(risks), rtol=1e-12)
    at = (scores >= best.threshold).astype(int)
    np.testing.assert_allclose(decision.empirical_risk(at, labels, cost, weights), best.risk, rtol=1e-12)
    assert float(decision.operating_point(curve, cost, prior=0.0).tpr) == 0


# ------------------------------------------------------------------ actions and risks


@every_dtype
def test_expected_loss_and_bayes_rule(dtype):
    probs, labels, weights = _multi(dtype)
    cost = np.random.default_rng(2).uniform(0, 5, (6, 4)).astype(dtype)
    loss = decision.expected_loss(probs, cost)
    close(loss, np.asarray(probs) @ cost.T, dtype)
    action = decision.bayes_action(probs, cost)
    np.testing.assert_array_equal(action, np.argmin(loss, axis=1))
    np.testing.assert_array_equal(decision.bayes_action(probs), np.argmax(probs, axis=1))
    close(decision.bayes_risk(probs, cost, weights), np.average(np.min(loss, axis=1), weights=weights), dtype)
    paid = cost[np.asarray(action), np.asarray(labels)]
    close(decision.empirical_risk(action, labels, cost, weights), np.average(paid, weights=weights), dtype)
    predicted = decision.bayes_action(probs)
    wrong = metrics.zero_one_loss(labels, predicted, sample_weight=weights)
    close(decision.error_rate(predicted, labels, weights), wrong, dtype)
    counts = decision.confusion_matrix(predicted, labels, 4, weights)
    close(counts.T, metrics.confusion_matrix(labels, predicted, sample_weight=weights), dtype)
    risk = decision.empirical_risk(predicted, labels, cost[:4], weights)
    close(jnp.sum(counts * cost[:4]) / jnp.sum(counts), risk, dtype)


def test_reject_option():
    cost = decision.with_reject(decision.zero_one(3), 0.3)
    probs = jnp.array([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.05, 0.85]])
    assert decision.bayes_action(probs, cost).tolist() == [0, 3, 2]
    assert decision.conditional_risk(probs, cost).round(3).tolist() == pytest.approx([0.2, 0.3, 0.15])


def test_binary_thresholds_are_the_bayes_rule():
    cost, prior = jnp.array([[0.1, 5.0], [2.0, -1.0]]), 0.3
    rule = decision.binary_thresholds(cost, prior)
    p = jnp.linspace(0.001, 0.999, 999)
    wanted = decision.bayes_action(jnp.stack([1 - p, p], axis=1), cost) == 1
    odds = p / (1 - p)
    for decided in (
        p >= rule.probability,
        odds >= rule.posterior_ratio,
        jnp.log(odds) >= rule.log_odds,
        jnp.log(odds) + rule.log_odds_offset >= 0,
        odds * (1 - prior) / prior >= rule.likelihood_ratio,
    ):
        np.testing.assert_array_equal(decided, wanted)
    simple = decision.binary_thresholds([[0.0, 4.0], [1.0, 0.0]])
    np.testing.assert_allclose([simple.probability, simple.posterior_ratio], [0.2, 0.25])
    assert np.isnan(simple.likelihood_ratio)


@pytest.mark.parametrize(
    ("loc", "scale", "prior", "cost"),
    [
        ([0.0, 2.0], [1.0, 1.0], [0.5, 0.5], None),
        ([0.0, 0.0], [1.0, 3.0], [0.5, 0.5], None),  # two boundaries
        ([0.0, 1.0], [1.0, 1.0], [0.999, 0.001], None),
        ([0.0, 0.1], [1.0, 1.5], [0.9, 0.1], None),  # one class never wins
        ([0.0, 0.0], [1.0, 1.0], [0.3, 0.7], None),  # equal densities
        ([-3.0, 0.0, 1.0, 4.0], [1.0, 0.3, 2.0, 1.0], [0.2, 0.1, 0.3, 0.4], None),
        ([0.0, 2.0], [1.0, 2.0], [0.7, 0.3], [[0.5, 10.0], [1.0, 0.1]]),
    ],
)
def test_gaussian_risk_is_the_integral(loc, scale, prior, cost):
    table = 1 - np.eye(len(loc)) if cost is None else np.array(cost)
    grid = np.linspace(-40, 40, 400_001)
    joint = np.array(prior)[:, None] * stats.norm.pdf(grid, np.array(loc)[:, None], np.array(scale)[:, None])
    wanted = np.trapezoid(np.min(table @ joint, axis=0), grid)
    found = decision.gaussian_risk(jnp.array(loc), jnp.array(scale), jnp.array(prior), cost)
    np.testing.assert_allclose(found.risk, wanted, atol=1e-8)
    inside = np.searchsorted(np.asarray(found.boundaries), grid)
    away = np.abs(grid[:, None] - np.asarray(found.boundaries)[None]).min(axis=1) > 1e-3
    loss = table @ joint
    chosen = loss[np.asarray(found.actions)[inside], np.arange(grid.size)]
    np.testing.assert_allclose(chosen[away], loss.min(axis=0)[away], atol=1e-12)


def test_gaussian_risk_differentiates_and_keeps_float32():
    args = jnp.array([0.0, 0.5, 2.0]), jnp.array([1.0, 0.4, 1.5]), jnp.array([0.3, 0.3, 0.4])
    check_grads(lambda m, s: decision.gaussian_risk(m, s, args[2]).risk, args[:2], 1, rtol=1e-4)
    shifted = [jnp.asarray(a, jnp.float32) for a in (args[0] + 5000, args[1], args[2])]
    np.testing.assert_allclose(decision.gaussian_risk(*shifted).risk, decision.gaussian_risk(*args).risk, atol=1e-4)
    assert decision.gaussian_risk(*shifted).risk.dtype == jnp.float32


def test_monte_carlo_agrees_with_the_exact_risk():
    loc, scale, prior = jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0]), jnp.array([0.7, 0.3])
    cost = jnp.array([[0.0, 3.0], [1.0, 0.0]])
    exact = decision.gaussian_risk(loc, scale, prior, cost)

    def sample(key):
        a, b = jr.split(key)
        y = jr.choice(a, 2, p=prior)
        return loc[y] + scale[y] * jr.normal(b), y

    decide = lambda x: exact.actions[jnp.searchsorted(exact.boundaries, x)]
    found = decision.monte_carlo_risk(jr.key(0), sample, decide, 20_000, cost)
    assert abs(float(found.value - exact.risk)) < 4 * float(found.standard_error)
    assert 0.001 < float(found.standard_error) < 0.01


# ------------------------------------------------------------------ calibration


@every_dtype
def test_calibration_against_scikit_learn(dtype):
    rng = np.random.default_rng(5)
    probs = rng.uniform(size=N).astype(dtype)
    labels = (rng.uniform(size=N) < probs**2).astype(int)
    for strategy in ("uniform", "quantile"):
        curve = decision.calibration_curve(probs, labels, num_bins=7, strategy=strategy)
        observed, predicted = their_calibration_curve(labels, probs, n_bins=7, strategy=strategy)
        close(curve.observed, observed, dtype)
        close(curve.predicted, predicted, dtype)
        close(jnp.sum(curve.mass), N, dtype)
    weights = rng.uniform(0.1, 2, N).astype(dtype)
    theirs = metrics.brier_score_loss(labels, probs, sample_weight=weights)
    close(decision.brier_score(probs, labels, weights), theirs, dtype)
    many, truth, _ = _multi(dtype)
    theirs = metrics.brier_score_loss(truth, many, sample_weight=weights, scale_by_half=False)
    close(decision.brier_score(many, truth, weights), theirs, dtype)
    close(decision.log_loss(many, truth, weights), metrics.log_loss(truth, many, sample_weight=weights), dtype)
    assert np.isinf(decision.log_loss(jnp.array([0.0, 0.5]), jnp.array([1, 1])))
    confidence, right = np.asarray(many).max(1), np.asarray(many).argmax(1) == np.asarray(truth)
    bins = np.ceil(confidence * 10)
    wanted = sum(abs(right[bins == b].sum() - confidence[bins == b].sum()) for b in np.unique(bins)) / N
    np.testing.assert_allclose(decision.expected_calibration_error(many, truth), wanted, atol=1e-6)


def test_temperature_scaling_finds_the_best_and_differentiates():
    rng = np.random.default_rng(6)
    logits = jnp.asarray(rng.normal(size=(N, 3)) * 2)
    labels = jnp.asarray([rng.choice(3, p=p) for p in np.asarray(jax.nn.softmax(logits, axis=1))])
    found = decision.temperature_scaling(3.7 * logits, labels)
    loss = lambda t: float(decision.log_loss(jax.nn.softmax(3.7 * logits / t, axis=1), labels))
    assert loss(found) <= min(loss(found * 0.99), loss(found * 1.01))
    np.testing.assert_allclose(found, 3.7 * decision.temperature_scaling(logits, labels), rtol=1e-8)
    check_grads(lambda z: decision.temperature_scaling(z, labels[:30]), (logits[:30],), 1, modes=["rev"], rtol=1e-3)
    right = jax.nn.one_hot(labels, 3)
    assert float(decision.temperature_scaling(right, labels)) < 0.05
    assert float(decision.temperature_scaling(-right, labels)) > 1e4


# ------------------------------------------------------------------ cross-validation


def test_folds_are_even_and_stratified():
    labels = jnp.array([0] * 20 + [1] * 10)
    folds = decision.fold_indices(jr.key(0), 30, 5, labels)
    for label, count in ((0, 4), (1, 2)):
        assert jnp.bincount(folds[labels == label], length=5).tolist() == [count] * 5
    assert (folds != decision.fold_indices(jr.key(1), 30, 5, labels)).any()
    assert decision.holdout(jr.key(0), 30, 0.2).sum() == 6


def test_folds_by_weights_are_folds_by_deletion():
    """A Gaussian mixture fitted on four fifths, five times in one program, scores what five separate fits do."""
    xs = jnp.concatenate([jr.normal(jr.key(0), (30, 2)), 6 + jr.normal(jr.key(1), (30, 2))])
    folds = decision.fold_indices(jr.key(2), 60, 5)
    start = pml.mixtures.gaussian_mixture(jr.key(3), xs, 2)
    fit = lambda xs, w: pml.fit(start, xs, weights=w).model
    score = lambda model, xs, w: model.log_likelihood(xs, w)
    together = decision.cross_validate(fit, score, xs, folds, 5)
    for fold in (0, 4):
        model = pml.fit(start, xs[folds != fold]).model
        alone = jnp.sum(jax.vmap(model.log_prob)(xs[folds == fold]))
        np.testing.assert_allclose(together[fold], alone, rtol=1e-6)
    probs = decision.cross_val_predict(fit, lambda m, xs: jax.vmap(m.log_prob)(xs), xs, folds, 5)
    np.testing.assert_allclose(jnp.sum(probs), jnp.sum(together), rtol=1e-10)


# ------------------------------------------------------------------ bad input

good = jnp.array([[0.5, 0.5], [0.2, 0.8]])
scores, labels = jnp.array([0.1, 0.7, 0.3]), jnp.array([0, 1, 1])
BAD = {
    "cost of another width": (lambda: decision.bayes_action(good, jnp.ones((2, 3))), "wanted \\(actions, 2\\)"),
    "cost not a matrix": (lambda: decision.expected_loss(good, jnp.ones(2)), "cost has shape"),
    "cost not finite": (lambda: decision.expected_loss(good, [[0.0, jnp.inf], [1.0, 0.0]]), "infinite"),
    "do not sum to one": (lambda: decision.bayes_action(jnp.array([0.5, 0.6])), "must sum to one"),
    "negative probability": (lambda: decision.bayes_risk(jnp.array([[-0.5, 1.5]])), "lie in"),
    "risk of one event": (lambda: decision.bayes_risk(good[0]), "wanted \\(n, c\\)"),
    "cost that rewards errors": (lambda: decision.binary_thresholds([[1.0, 0.0], [0.0, 1.0]]), "charge more"),
    "prior": (lambda: decision.binary_thresholds([[0.0, 1.0], [1.0, 0.0]], 1.5), "prior"),
    "label outside": (lambda: decision.roc_curve(scores, jnp.array([0, 1, 2])), "labels"),
    "label below": (lambda: decision.empirical_risk(labels, jnp.array([0, 1, -2])), "labels"),
    "action outside": (lambda: decision.empirical_risk(jnp.array([0, 1, 5]), labels, decision.zero_one(2)), "actions"),
    "one class only": (lambda: decision.auc(scores, jnp.ones(3, int)), "one class only"),
    "class without units": (lambda: decision.auc(jnp.ones((3, 3)), labels), "label 2"),
    "NaN score": (lambda: decision.auc(scores.at[0].set(jnp.nan), labels), "NaN"),
    "lengths": (lambda: decision.auc(scores, labels[:2]), "labels has shape"),
    "negative weight": (lambda: decision.auc(scores, labels, jnp.array([1.0, -1.0, 1.0])), "non-negative"),
    "three classes": (lambda: decision.calibration_curve(jnp.eye(3), jnp.arange(3)), "wanted two"),
    "temperature": (lambda: decision.soft_auc(scores, labels, temperature=0.0), "positive"),
    "level": (lambda: decision.auc_interval(scores, labels, level=95), "level"),
    "folds": (lambda: decision.fold_indices(jr.key(0), 3, 4), "num_folds"),
    "fold outside": (lambda: decision.cross_validate(max, max, scores, jnp.array([0, 1, 2]), 2), "folds"),
    "scale": (lambda: decision.gaussian_risk([0.0, 1.0], [0.0, 1.0], [0.5, 0.5]), "scale"),
    "costs of three": (
        lambda: decision.gaussian_risk([0.0] * 3, [1.0] * 3, [0.2, 0.3, 0.5], jnp.eye(3)),
        "two classes",
    ),
    "confusion": (lambda: decision.confusion_matrix(labels, jnp.array([0, 3, 1]), 2), "labels"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_raises(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_input_is_nan_inside_jit():
    spoiled = {
        "auc of one class": (decision.auc, scores, jnp.ones(3, int)),
        "auc with a label outside": (decision.auc, scores, jnp.array([0, 1, 2])),
        "auc of many": (decision.auc, jnp.ones((3, 3)), labels),
        "roc": (lambda s, y: decision.roc_curve(s, y).tpr, scores.at[1].set(jnp.nan), labels),
        "loss": (decision.expected_loss, jnp.array([0.5, 0.6]), decision.zero_one(2)),
        "log loss": (decision.log_loss, jnp.array([0.5, 1.6, 0.1]), labels),
        "brier": (decision.brier_score, jnp.array([0.5, 0.6, 0.1]), jnp.array([0, 1, 7])),
        "risk": (decision.empirical_risk, labels, jnp.array([0, 1, -5])),
        "confusion": (lambda a, y: decision.confusion_matrix(a, y, 2), labels, jnp.array([0, 1, 9])),
        "temperature": (decision.temperature_scaling, jnp.ones((3, 2)), jnp.array([0, 1, 2])),
        "thresholds": (lambda c, p: decision.binary_thresholds(c, p).probability, jnp.eye(2), 0.5),
        "soft": (decision.soft_auc, scores, jnp.zeros(3, int)),
    }
    for name, (function, *args) in spoiled.items():
        assert np.isnan(jax.jit(function)(*args)).all(), name
    assert jax.jit(decision.bayes_action)(jnp.array([[0.5, 0.6], [0.1, 0.9]])).tolist() == [-1, 1]


def test_units_are_counted_beyond_what_float32_counts():
    n = 17_000_000
    with jax.enable_x64(False):
        counts = decision.confusion_matrix(np.zeros(n, np.int8), np.zeros(n, np.int8), 2)
    assert counts[0, 0] == n
    assert counts.dtype == jnp.float32


def test_actions_that_do_not_exist_cost_nan():
    coin = lambda key: (0.0, jnp.array(2))
    assert np.isnan(decision.monte_carlo_risk(jr.key(0), coin, lambda x: 0, 10, jnp.eye(2)).value)
    with pytest.raises(ValueError, match="cost must be a matrix"):
        decision.with_reject(None, 0.1)


def test_cross_validation_compiles_once():
    xs, folds = jnp.arange(12.0), jnp.arange(12) % 3
    traced = []

    def mean(xs, weights):
        traced.append(1)
        return weights @ xs / weights.sum()

    error = lambda m, xs, w: w @ (xs - m) ** 2 / w.sum()
    same = lambda m, xs: jnp.full_like(xs, m)
    for _ in range(3):
        decision.cross_validate(mean, error, xs, folds, 3)
        decision.cross_val_predict(mean, same, xs, folds, 3)
    assert len(traced) == 2

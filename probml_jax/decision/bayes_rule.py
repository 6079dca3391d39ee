"""The Bayes rule: posterior and costs in, the action of least expected loss out, with its risk."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from .._typing import PRNGKey, Scalar
from .._validate import as_weights, check, check_positive, check_shape, check_simplex, common_dtype
from .loss import expected_loss
from .outcomes import as_cost, marked, on_simplex


def bayes_action(probs: Any, cost: Any = None) -> Int[Array, "*n"]:
    r"""The action of least expected loss, $\arg\min_a \sum_k C_{ak}\, p(k \mid x)$; the first of several.

    `probs (..., c)`, `cost (a, c)` as in `expected_loss`; with the default 0-1 loss it is the most probable class. A
    reject option is one more action: `with_reject`. Bad input raises `ValueError`; in compiled code it gives -1.

    Reference: Bishop (2006), section 1.5.2.

    >>> bayes_action(jnp.array([[0.8, 0.2], [0.95, 0.05]]), [[0.0, 10.0], [1.0, 0.0]]).tolist()
    [1, 0]
    """
    loss = expected_loss(probs, cost)
    return jnp.where(jnp.any(jnp.isnan(loss), axis=-1), -1, jnp.argmin(loss, axis=-1))


def conditional_risk(probs: Any, cost: Any = None) -> Float[Array, "*n"]:
    r"""Expected loss of the Bayes action of each event, $\min_a R(a \mid x)$; arguments as in `bayes_action`.

    >>> conditional_risk(jnp.array([[0.75, 0.25]]), [[0.0, 5.0], [1.0, 0.0]]).tolist()  # a miss costs five false alarms
    [0.75]
    """
    return jnp.min(expected_loss(probs, cost), axis=-1)


def bayes_risk(probs: Any, cost: Any = None, weights: Any = None) -> Scalar:
    r"""$E_x \min_a R(a \mid x)$, averaged over events with posteriors `probs (n, c)`.

    Over draws from $p(x)$ with their true posteriors it is an unbiased estimate of the least risk any rule can have.

    >>> float(bayes_risk(jnp.array([[0.8, 0.2], [0.6, 0.4]])).round(3))
    0.3
    """
    risk = conditional_risk(probs, cost)
    if risk.ndim != 1:
        raise ValueError(f"probs has shape {jnp.shape(probs)}; wanted (n, c).")
    weights = as_weights(weights, risk.shape[0], risk.dtype)
    return jnp.sum(weights * risk) / jnp.sum(weights)


# ---------------------------------------------------------------------------------------------- two classes


class BinaryThresholds(NamedTuple):
    """One rule in its equivalent forms: decide for class 1 where the quantity reaches the threshold.

    `log_odds_offset` is added to the posterior log-odds, and the sum is compared with 0. `likelihood_ratio` is that of
    $p(x|1)/p(x|0)$, for the class priors given; NaN where they were not.
    """

    probability: Scalar
    posterior_ratio: Scalar
    log_odds: Scalar
    log_odds_offset: Scalar
    likelihood_ratio: Scalar


def binary_thresholds(cost: Any, prior: Any = None) -> BinaryThresholds:
    r"""The Bayes rule of two classes and two actions, as thresholds.

    Decide for class 1 where $p(1 \mid x)/p(0 \mid x) \ge (C_{10} - C_{00})/(C_{01} - C_{11})$, which for costless right
    decisions is $C_{10}/C_{01}$: the price of a false alarm over that of a miss. `prior` is $p(y = 1)$, for the form in
    likelihoods. An error that costs no more than the right decision leaves nothing to decide: `ValueError`, and NaN in
    compiled code. Reference: Duda, Hart and Stork (2001), equation 2.17.

    >>> rule = binary_thresholds([[0.0, 9.0], [1.0, 0.0]], prior=0.5)
    >>> round(float(rule.probability), 3), round(float(rule.likelihood_ratio), 3)
    (0.1, 0.111)
    """
    cost = as_cost(cost, 2)
    check_shape("cost", cost, (2, 2))
    alarm, miss = cost[1, 0] - cost[0, 0], cost[0, 1] - cost[1, 1]
    check(jnp.stack([alarm, miss]) > 0, "cost must charge more for an error than for the right decision.")
    prior = jnp.asarray(jnp.nan if prior is None else prior, cost.dtype)
    check(jnp.isnan(prior) | ((prior > 0) & (prior < 1)), "prior must lie between 0 and 1: the probability of class 1.")
    ratio = marked((alarm > 0) & (miss > 0), alarm / miss)
    log_odds = jnp.log(ratio)
    return BinaryThresholds(ratio / (1 + ratio), ratio, log_odds, -log_odds, ratio * (1 - prior) / prior)


# ---------------------------------------------------------------------------------------------- P(error)


class RiskEstimate(NamedTuple):
    """A Monte Carlo average and its standard error."""

    value: Scalar
    standard_error: Scalar


def monte_carlo_risk(
    key: PRNGKey,
    sample: Callable[[PRNGKey], tuple[Any, Array]],
    decide: Callable[[Any], Array],
    num_samples: int,
    cost: Any = None,
) -> RiskEstimate:
    r"""Risk of a decision rule, $E\, C_{a(x), y}$, by draws from the joint: P(error) under the default 0-1 loss.

    `sample(key)` draws one pair (x, y); `decide(x)` gives the action. Actions and classes that `cost` does not have
    make it NaN. Any rule, any dimension, error $O(1/\sqrt{n})$; for Gaussians of one dimension see `gaussian_risk`.

    >>> coin = lambda key: (0.0, jr.bernoulli(key, 0.3).astype(int))
    >>> bool(abs(monte_carlo_risk(jr.key(0), coin, lambda x: 0, 10_000).value - 0.3) < 0.02)
    True
    """
    if num_samples < 2:
        raise ValueError(f"num_samples must be at least 2; got {num_samples}.")
    if cost is not None:
        cost = as_cost(cost, jnp.shape(cost)[-1])
    return _monte_carlo(key, sample, decide, num_samples, cost)


@eqx.filter_jit
def _monte_carlo(key: PRNGKey, sample: Callable, decide: Callable, num_samples: int, cost: Array | None):
    def paid(key):
        x, y = sample(key)
        action = decide(x)
        if cost is None:
            return (action != y).astype(jnp.result_type(float))
        known = (0 <= action) & (action < cost.shape[0]) & (0 <= y) & (y < cost.shape[1])
        return jnp.where(known, cost[action, y], jnp.nan)

    costs = jax.vmap(paid)(jr.split(key, num_samples))
    return RiskEstimate(jnp.mean(costs), jnp.std(costs, ddof=1) / np.sqrt(num_samples))


class ExactRisk(NamedTuple):
    """The least risk, and the rule that has it: `actions[j]` between `boundaries[j-1]` and `boundaries[j]`.

    Boundaries are in order; those that do not exist are `inf`. Neighboring intervals may have the same action.
    """

    risk: Scalar
    boundaries: Float[Array, "m"]
    actions: Int[Array, "intervals"]


def gaussian_risk(loc: Any, scale: Any, prior: Any, cost: Any = None) -> ExactRisk:
    r"""Bayes risk of c Gaussian classes on a line, exactly: $1 - \sum_k \int_{R_k} \pi_k N(x; \mu_k, \sigma_k)$.

    - `loc (c,)`, `scale (c,)`, `prior (c,)`: means, standard deviations and probabilities of the classes.
    - `cost (2, 2)`: for two classes; the 0-1 loss, for any number of them, where it is not given.

    Regions end where two weighted densities are equal, the roots of $c(c-1)/2$ quadratics; between neighboring roots
    one class wins and its probability is a difference of error functions. Gradients are exact: at the boundaries of
    the best rule the losses are equal, so moving them changes nothing to first order. Wrong shapes or values raise
    `ValueError`; NaN in compiled code. Cost: $O(c^3)$. Reference: Bishop (2006), equation 1.78.

    >>> found = gaussian_risk([-1.0, 1.0], [1.0, 1.0], [0.5, 0.5])
    >>> round(float(found.risk), 4), abs(round(float(found.boundaries[0]), 4))
    (0.1587, 0.0)
    """
    array = lambda a: jnp.asarray(a) if isinstance(a, (list, tuple)) else a
    loc, scale, prior = common_dtype(loc=array(loc), scale=array(scale), prior=array(prior))
    c = loc.shape[0] if loc.ndim == 1 else 0
    if c < 1:
        raise ValueError(f"loc has shape {tuple(loc.shape)}; wanted (c,): one mean per class.")
    check_shape("scale", scale, (c,))
    check_shape("prior", prior, (c,))
    check_positive("scale", scale)
    check_simplex("prior", prior)
    gain = None
    if cost is not None:
        if c != 2:
            raise ValueError(f"cost is for two classes; with {c} the regions have no closed form: monte_carlo_risk.")
        binary_thresholds(cost)
        gain = as_cost(cost, 2, loc.dtype)
    return _gaussian_risk(loc, scale, prior, gain)


@eqx.filter_jit
def _gaussian_risk(loc: Array, scale: Array, prior: Array, cost: Array | None) -> ExactRisk:
    c = loc.size
    # what a right decision saves, as a prior: the regions of two classes with costs are those of other priors
    worth = prior if cost is None else prior * jnp.stack([cost[1, 0] - cost[0, 0], cost[0, 1] - cost[1, 1]])
    sound = jnp.all(worth >= 0) & jnp.all(scale > 0) & on_simplex(prior)
    first, second = np.triu_indices(c, 1)
    roots = jax.vmap(_crossings)(loc[first], loc[second], scale[first], scale[second], worth[first], worth[second])
    boundaries = jnp.sort(jax.lax.stop_gradient(roots).reshape(-1))
    there = jnp.isfinite(boundaries)
    reach = jnp.max(jnp.abs(loc)) + 40 * jnp.max(scale) + jnp.max(jnp.where(there, jnp.abs(boundaries), 0))
    edges = jnp.concatenate([-reach[None], jnp.where(there, boundaries, reach), reach[None]])
    inside = 0.5 * (edges[1:] + edges[:-1])
    density = jnp.log(worth)[None] + norm.logpdf(inside[:, None], loc[None], scale[None])
    actions = jnp.argmax(jax.lax.stop_gradient(density), axis=1)
    share = _between(edges[:-1, None], edges[1:, None], loc[None], scale[None])
    table = 1 - jnp.eye(c, dtype=loc.dtype) if cost is None else cost
    risk = jnp.sum(table[actions] * share * prior[None])
    return ExactRisk(marked(sound, risk), boundaries, actions)


def _crossings(m1: Array, m2: Array, s1: Array, s2: Array, w1: Array, w2: Array) -> Float[Array, "2"]:
    """Where two weighted Gaussian densities are equal; `inf` for what does not exist. Centred, so float32 will do."""
    middle = 0.5 * (m1 + m2)
    m1, m2 = m1 - middle, m2 - middle
    p1, p2 = s1**-2, s2**-2
    a, b = 0.5 * (p2 - p1), p1 * m1 - p2 * m2
    c = 0.5 * (p2 * m2**2 - p1 * m1**2) + jnp.log(w1 / w2) - jnp.log(s1 / s2)
    inside = b * b - 4 * a * c
    # the sum without cancellation; where a vanishes the first root is at infinity and the second that of the line
    q = -0.5 * (b + jnp.where(b < 0, -1, 1) * jnp.sqrt(jnp.maximum(inside, 0)))
    roots = jnp.stack([q / a, c / q])
    return jnp.where((inside >= 0) & jnp.isfinite(roots), roots + middle, jnp.inf)


def _between(low: Array, high: Array, loc: Array, scale: Array) -> Array:
    """Probability of an interval, from the tail on its own side: small ones keep their digits."""
    a, b = (low - loc) / scale, (high - loc) / scale
    flip = a + b > 0
    a, b = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
    return norm.cdf(b) - norm.cdf(a)

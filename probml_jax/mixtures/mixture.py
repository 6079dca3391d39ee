"""The mixture model: the shortest complete model of the library, and the pattern of all others."""

from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._estimate import ML, AbstractEstimate, Frozen
from .._model import AbstractLatentModel
from .._special import logsumexp, pairwise_dot, xlogy
from .._stack import AbstractStack, Stacked
from .._typing import Event, Flag, PRNGKey, Scalar, Statistics
from ..distributions.categorical import Categorical


def one_event(x: Event) -> Event:
    """An event as a batch of one."""
    return jax.tree_util.tree_map(lambda a: jnp.asarray(a)[None], x)


def normalized(joint: Float[Array, "k n"]) -> tuple[Float[Array, "k n"], Float[Array, "n"]]:
    """Shares from log joint scores, and the log totals; where nothing is possible all shares are zero."""
    total = logsumexp(joint, axis=0)
    safe = jnp.where(total == -jnp.inf, 0.0, total)
    return jnp.exp(joint - safe[None, :]), total


class Mixture(AbstractLatentModel):
    r"""$p(x) = \sum_k \pi_k\, p_k(x)$ over one event $x$.

    `weights` is a leaf over labels and `components` a stack of k leaves of any kind; whether they are learned by
    maximum likelihood, MAP or variational Bayes is a property of the leaves. Missing (NaN) entries are integrated
    out wherever the component's family does. Under `Bayes` leaves `log_prob` is the point's share of the evidence
    lower bound; `predictive()` gives the proper density.

    Cost of an E-step: k times that of scoring and pooling n events by one leaf. Reference: Bishop (2006), chapter 9.

    >>> from probml_jax.distributions import Normal
    >>> parts = Stacked(ML(jax.vmap(Normal)(jnp.array([-2.0, 2.0]), jnp.ones(2))))
    >>> model = Mixture(ML(Categorical(probs=[0.5, 0.5])), parts)
    >>> [round(float(p), 3) for p in model.posterior(jnp.array(1.0))]
    [0.018, 0.982]
    """

    weights: AbstractEstimate
    components: AbstractStack

    # -------------------------------------------------------------------------------------- scores

    @property
    def num_components(self) -> int:
        """k."""
        return self.components.size

    def log_joint(self, xs) -> Float[Array, "k n"]:
        r"""$\log \pi_k + \log p_k(x_i)$ (their expectations under `Bayes` leaves)."""
        log_weights = jax.vmap(self.weights.expected_log_prob)(jnp.arange(self.num_components))
        return log_weights[:, None] + self.components.expected_log_probs(xs)

    def log_prob(self, x: Event) -> Scalar:
        return logsumexp(self.log_joint(one_event(x))[:, 0])

    @eqx.filter_jit
    def posterior(self, x: Event) -> Float[Array, "k"]:
        """Probability of each component given one event; NaN for an event no component can produce."""
        joint = self.log_joint(one_event(x))[:, 0]
        return jnp.exp(joint - logsumexp(joint))

    @eqx.filter_jit
    def predict(self, x: Event) -> Int[Array, ""]:
        """The most probable component of one event (hard clustering)."""
        return jnp.argmax(self.log_joint(one_event(x))[:, 0])

    def responsibilities(self, xs) -> tuple[Float[Array, "k n"], Float[Array, "n"]]:
        r"""$p(k \mid x_i)$ and $\log p(x_i)$; an impossible event belongs to nobody.

        The responsibilities are the gradient of the log-partition function $\log\sum_k e^{a_{ki}}$.
        """
        return normalized(self.log_joint(xs))

    # -------------------------------------------------------------------------------------- learning

    def e_step(self, data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        shares, total = self.responsibilities(data)
        shares = shares * weights[None, :]
        return (jnp.sum(shares, axis=1), self.components.statistics(data, shares)), pairwise_dot(weights, total)

    def m_step(self, stats: Statistics) -> Self:
        counts, per_component = stats
        return Mixture(self.weights.refit(counts), self.components.refit(per_component))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        counts, per_component = stats
        return self.weights.recenter(counts, new.weights), self.components.recenter(per_component, new.components)

    def log_prior(self) -> Scalar:
        return self.weights.log_prior() + self.components.log_prior()

    def surrogate(self, data, weights: Float[Array, "n"], reference: Self) -> Scalar:
        shares = jax.lax.stop_gradient(reference.responsibilities(data)[0]) * weights[None, :]
        return jnp.sum(jnp.where(shares > 0, shares * self.log_joint(data), 0))

    def elbo(self, xs, weights: Float[Array, "n"], responsibilities: Float[Array, "k n"]) -> Scalar:
        r"""$\sum_i w_i \sum_k r_{ki}(\log\pi_k p_k(x_i) - \log r_{ki}) + \log p(\theta)$ for any responsibilities.

        It equals the objective when $r$ is the posterior; otherwise it is lower by the weighted
        $KL(r \| p(k \mid x))$.
        """
        joint = jnp.where(responsibilities > 0, responsibilities * self.log_joint(xs), 0)
        entropy = -jnp.sum(xlogy(responsibilities, responsibilities), axis=0)
        return pairwise_dot(weights, jnp.sum(joint, axis=0) + entropy) + self.log_prior()

    # -------------------------------------------------------------------------------------- the fitted density

    def plug_in(self) -> Self:
        """The same mixture with every belief replaced by one member: an ordinary density."""
        return Mixture(ML(self.weights.point()), Stacked(self.components.map(lambda leaf: ML(leaf.point()))))

    @eqx.filter_jit
    def predictive(self) -> Self:
        """The density of a new event, averaged over the posterior of `Bayes` leaves (Student-t for Gaussians)."""
        parts = self.components.map(lambda leaf: Frozen(ML(leaf.predictive())))
        return Mixture(Frozen(ML(self.weights.predictive())), Stacked(parts))

    @eqx.filter_jit
    def sample(self, key: PRNGKey) -> Event:
        """One event of the predictive density."""
        which, what = jr.split(key)
        index = self.weights.predictive().sample(which)
        return self.components.member(index).predictive().sample(what)

    @eqx.filter_jit
    def marginal(self, indices: Sequence[int]) -> Self:
        """Density of some coordinates of the event."""
        model = self.plug_in()
        parts = model.components.map(lambda leaf: ML(leaf.point().marginal(indices)))
        return Mixture(model.weights, Stacked(parts))

    @eqx.filter_jit
    def condition(self, indices: Sequence[int], values: Float[Array, "m"]) -> Self:
        """Density of the other coordinates (in order) given `x[indices] = values`."""
        model = self.plug_in()
        values = jnp.asarray(values)
        posterior = model.marginal(indices).posterior(values)
        parts = model.components.map(lambda leaf: ML(leaf.point().condition(indices, values)))
        return Mixture(ML(Categorical(posterior)), Stacked(parts))

    @eqx.filter_jit
    def impute(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """The event with its missing (NaN) entries replaced by their posterior mean given the others."""
        model = self.plug_in()
        filled = model.components.map(lambda leaf: leaf.point().impute(x)[0])
        return jnp.where(jnp.isnan(x), self.posterior(x) @ filled, x)

    @eqx.filter_jit
    def mean(self) -> Array:
        """Mean of the density (of the plug-in members)."""
        model = self.plug_in()
        return jnp.tensordot(model.weights.point().probs, model.components.map(lambda leaf: leaf.point().mean()), 1)

    # -------------------------------------------------------------------------------------- honesty

    def validate(self, data) -> None:
        self.components.validate(data)
        if self.components.indistinct():
            raise ValueError(
                "all components are identical: responsibilities would be equal and no method could ever "
                "separate them. Start them apart, for example with a builder of pml.mixtures."
            )

    def degenerate(self) -> Flag:
        """A component has lost all its weight, or its estimate is degenerate."""
        share = jnp.exp(jax.vmap(self.weights.expected_log_prob)(jnp.arange(self.num_components)))
        empty = jnp.any(share <= 16 * jnp.finfo(share.dtype).eps) & isinstance(self.weights, ML)
        return empty | self.components.degenerate()

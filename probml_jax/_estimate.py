"""Leaves: what we believe of one distribution. ML, MAP and Bayes differ here and nowhere else."""

import dataclasses
from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp

from ._conjugate import AbstractConjugatePrior
from ._constraint import fixed
from ._distribution import AbstractDistribution, AbstractFamily, recenter
from ._model import AbstractLatentModel
from ._typing import Event, Flag, Scalar, Statistics
from ._validate import float_dtype


class AbstractEstimate(eqx.Module):
    """A leaf of a model: a distribution together with how it is learned."""

    @abstractmethod
    def expected_log_prob(self, x: Event) -> Scalar:
        r"""$\log p(x \mid \theta)$, or $E_q \log p(x \mid \theta)$ when the parameters are uncertain."""

    @abstractmethod
    def statistics(self, xs, weights) -> Statistics:
        """Statistics pooled over n weighted events: additive, centred."""

    @abstractmethod
    def refit(self, stats: Statistics) -> Self:
        """M-step of this leaf: argmax, mode, or conjugate update."""

    @abstractmethod
    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        """Statistics taken around this leaf as they would be around `new`, so that both sorts add."""

    @abstractmethod
    def log_prior(self) -> Scalar:
        """0, log p(theta), or -KL(q || p)."""

    @abstractmethod
    def point(self) -> Any:
        """One member standing for the belief: the estimate, or the posterior mean."""

    @abstractmethod
    def predictive(self) -> Any:
        """Distribution of a new event: plug-in for a point estimate, averaged over the posterior for `Bayes`."""

    @abstractmethod
    def validate(self, xs) -> None:
        """Raise `ValueError` naming what is wrong with `xs`; silent for tracers."""

    @abstractmethod
    def degenerate(self) -> Flag:
        """Whether the estimate sits on the edge of its domain."""


def _zero(tree) -> Scalar:
    return jnp.zeros((), float_dtype(tree))


def with_constants_of(new: AbstractFamily, old: AbstractFamily) -> AbstractFamily:
    """Parameters of `new`, known constants (a floor, a number of trials) of `old`: the structure is stable."""
    constants = [f.name for f in dataclasses.fields(old) if "constraint" not in f.metadata]
    return dataclasses.replace(new, **{name: getattr(old, name) for name in constants})


class ML(AbstractEstimate):
    """A maximum-likelihood estimate.

    >>> from probml_jax.distributions import Normal
    >>> leaf = ML(Normal(loc=0.0, scale=1.0))
    >>> leaf.refit(leaf.statistics(jnp.array([1.0, 3.0]), jnp.ones(2))).distribution.loc.item()
    2.0
    """

    distribution: AbstractDistribution

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.distribution.log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return self.distribution.statistics(xs, weights)

    def refit(self, stats: Statistics) -> Self:
        return ML(self.distribution.refit(stats))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return recenter(self.distribution, stats, new.distribution)

    def log_prior(self) -> Scalar:
        return _zero(self.distribution)

    def point(self) -> AbstractDistribution:
        return self.distribution

    def predictive(self) -> AbstractDistribution:
        return self.distribution

    def validate(self, xs) -> None:
        self.distribution.validate(xs)

    def degenerate(self) -> Flag:
        return self.distribution.degenerate()


class MAP(AbstractEstimate):
    """The mode of the posterior under a conjugate prior. The prior itself never trains.

    >>> import probml_jax as pml
    >>> leaf = MAP(pml.distributions.Bernoulli(probs=0.5), pml.conjugate.BetaBernoulli(2.0, 2.0))
    >>> leaf.refit(leaf.statistics(jnp.ones(2), jnp.ones(2))).distribution.probs.item()  # 3 of 4
    0.75
    """

    distribution: AbstractFamily
    prior: AbstractConjugatePrior = fixed()

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.distribution.log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return self.distribution.statistics(xs, weights)

    def refit(self, stats: Statistics) -> Self:
        mode = self.prior.absorb(stats, self.distribution).mode()
        return MAP(with_constants_of(mode, self.distribution), self.prior)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return recenter(self.distribution, stats, new.distribution)

    def log_prior(self) -> Scalar:
        return self.prior.log_prob(self.distribution)

    def point(self) -> AbstractFamily:
        return self.distribution

    def predictive(self) -> AbstractFamily:
        return self.distribution

    def validate(self, xs) -> None:
        self.distribution.validate(xs)

    def degenerate(self) -> Flag:
        return self.distribution.degenerate()


class Bayes(AbstractEstimate):
    r"""A (variational) posterior $q(\theta)$ of the conjugate form; the objective gains $-KL(q \| p)$.

    >>> import probml_jax as pml
    >>> prior = pml.conjugate.BetaBernoulli(1.0, 1.0)
    >>> leaf = Bayes(prior, prior)
    >>> leaf.refit(leaf.statistics(jnp.ones(2), jnp.ones(2))).predictive().probs.item()  # Laplace's rule of succession
    0.75
    """

    posterior: AbstractConjugatePrior
    prior: AbstractConjugatePrior = fixed()

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.posterior.expected_log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return self.posterior.expected()[0].statistics(xs, weights)

    def refit(self, stats: Statistics) -> Self:
        return Bayes(self.prior.absorb(stats, self.posterior.expected()[0]), self.prior)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return recenter(self.posterior.expected()[0], stats, new.posterior.expected()[0])

    def log_prior(self) -> Scalar:
        return -self.posterior.kl(self.prior)

    def point(self) -> AbstractFamily:
        return self.posterior.mean()

    def predictive(self) -> AbstractDistribution:
        return self.posterior.predictive()

    def validate(self, xs) -> None:
        self.posterior.expected()[0].validate(xs)

    def degenerate(self) -> Flag:
        return jnp.array(False)


class Frozen(AbstractEstimate):
    """A leaf that is scored and never learned: EM leaves it alone and gradients stop at it.

    >>> from probml_jax.distributions import Normal
    >>> leaf = Frozen(ML(Normal(loc=0.0, scale=1.0)))
    >>> leaf.refit(leaf.statistics(jnp.array([5.0]), jnp.ones(1))).point().loc.item()
    0.0
    """

    leaf: AbstractEstimate = fixed()

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.leaf.expected_log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return ()

    def refit(self, stats: Statistics) -> Self:
        return self

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return stats

    def log_prior(self) -> Scalar:
        return self.leaf.log_prior()

    def point(self) -> Any:
        return self.leaf.point()

    def predictive(self) -> Any:
        return self.leaf.predictive()

    def validate(self, xs) -> None:
        self.leaf.validate(xs)

    def degenerate(self) -> Flag:
        return jnp.array(False)


class Known(AbstractEstimate):
    """A density of any kind, taken as it is (a kernel density, a flow): scored and sampled, never learned.

    >>> import probml_jax as pml
    >>> leaf = Known(pml.density.KernelDensity.from_data(jnp.array([[0.0], [1.0], [2.0]])))
    >>> leaf.expected_log_prob(jnp.array([1.0])) > leaf.expected_log_prob(jnp.array([9.0]))
    Array(True, dtype=bool)
    """

    density: Any = fixed()

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.density.log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return ()

    def refit(self, stats: Statistics) -> Self:
        return self

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return stats

    def log_prior(self) -> Scalar:
        return _zero(self.density)

    def point(self) -> Any:
        return self.density

    def predictive(self) -> Any:
        return self.density

    def validate(self, xs) -> None:
        """Whatever the density can score."""

    def degenerate(self) -> Flag:
        return jnp.array(False)


class Nested(AbstractEstimate):
    """A latent model as a leaf: mixtures of mixtures, HMMs with mixture emissions.

    >>> import jax, probml_jax as pml
    >>> normals = pml.Stacked(ML(jax.vmap(pml.distributions.Normal)(jnp.array([-2.0, 2.0]), jnp.ones(2))))
    >>> leaf = Nested(pml.mixtures.Mixture(ML(pml.distributions.Categorical([0.5, 0.5])), normals))
    >>> round(float(leaf.expected_log_prob(jnp.array(0.0))), 4)
    -2.9189
    """

    model: AbstractLatentModel

    def expected_log_prob(self, x: Event) -> Scalar:
        return self.model.log_prob(x)

    def statistics(self, xs, weights) -> Statistics:
        return self.model.e_step(xs, weights)[0]

    def refit(self, stats: Statistics) -> Self:
        return Nested(self.model.m_step(stats))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return self.model.recenter(stats, new.model)

    def log_prior(self) -> Scalar:
        return self.model.log_prior()

    def point(self) -> AbstractLatentModel:
        return self.model

    def predictive(self) -> AbstractLatentModel:
        return self.model

    def validate(self, xs) -> None:
        self.model.validate(xs)

    def degenerate(self) -> Flag:
        return self.model.degenerate()

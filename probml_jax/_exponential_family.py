"""Exponential families: h(x) exp(eta . t(x) - A(eta))."""

import dataclasses
from abc import abstractmethod
from typing import Any, Self

import jax
import jax.numpy as jnp

from ._distribution import AbstractFamily
from ._typing import Event, PyTree, Scalar


class AbstractExponentialFamily(AbstractFamily):
    r"""$p(x \mid \eta) = h(x) \exp(\eta \cdot t(x) - A(\eta))$.

    Everything follows from the log-normalizer $A$: its gradient is the mean of the sufficient statistics,
    its Hessian their covariance (the Fisher information), and the KL divergence its Bregman divergence.
    Constants that are known, not estimated (the number of trials), are fields without `param`; they are
    handed to `from_natural` and `from_mean_parameters` as keywords. See Murphy (2022), section 3.4.
    """

    @abstractmethod
    def suffstats(self, x: Event) -> PyTree:
        """t(x) of one event."""

    @abstractmethod
    def natural(self) -> PyTree:
        """Natural parameters, with the same tree structure as `suffstats`."""

    @abstractmethod
    def log_normalizer(self) -> Scalar:
        """A at this member's natural parameters."""

    @abstractmethod
    def log_base_measure(self, x: Event) -> Scalar:
        """log h(x) of one event."""

    @classmethod
    @abstractmethod
    def from_natural(cls, eta: PyTree, **known: Any) -> Self:
        """The member with these natural parameters."""

    @classmethod
    @abstractmethod
    def from_mean_parameters(cls, m: PyTree, **known: Any) -> Self:
        """The member with E[t(x)] = m: maximum likelihood by moment matching."""

    @abstractmethod
    def entropy(self) -> Scalar:
        """-E log p(x)."""

    @abstractmethod
    def kl(self, other: Self) -> Scalar:
        """KL(self || other), in closed form."""

    def known(self) -> dict[str, Any]:
        """The fields that are constants of the family rather than parameters."""
        fields = [f for f in dataclasses.fields(self) if "constraint" not in f.metadata]
        return {f.name: getattr(self, f.name) for f in fields}

    def mean_parameters(self) -> PyTree:
        """E[t(x)], by differentiating A."""
        known = self.known()
        return jax.grad(lambda eta: type(self).from_natural(eta, **known).log_normalizer())(self.natural())

    def fisher_information(self) -> PyTree:
        """Cov[t(x)], by differentiating A twice (a Hessian tree)."""
        known = self.known()
        return jax.hessian(lambda eta: type(self).from_natural(eta, **known).log_normalizer())(self.natural())

    def cross_entropy(self, other: Self) -> Scalar:
        """-E_self log other(x)."""
        return self.entropy() + self.kl(other)


def bregman(q: AbstractExponentialFamily, p: AbstractExponentialFamily) -> Scalar:
    r"""KL(q || p) as the Bregman divergence $A(\eta_p) - A(\eta_q) - (\eta_p - \eta_q)\cdot\nabla A(\eta_q)$.

    The general law; families implement `kl` in closed form because this one cancels in float32.
    """
    dots = jax.tree_util.tree_map(lambda a, b, m: jnp.sum((a - b) * m), p.natural(), q.natural(), q.mean_parameters())
    return p.log_normalizer() - q.log_normalizer() - sum(jax.tree_util.tree_leaves(dots))

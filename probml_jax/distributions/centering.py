"""Statistics around one member of a family as they would be around another: for what was learned before it moved."""

import jax.numpy as jnp
from jaxtyping import Array

from .._distribution import recenter
from .._linalg import matmul
from .coordinates import Moments
from .multivariate_normal import MultivariateNormal
from .multivariate_student_t import MultivariateStudentT
from .normal import Normal
from .regression import AbstractLinear, RegressionMoments
from .spherical_normal import SphericalNormal
from .student_t import ScaleMixtureMoments, StudentT


def _second(second: Array, first: Array, mass: Array, shift: Array) -> Array:
    r"""$\sum w(\delta+s)(\delta+s)^\top$, or its diagonal, from $\sum w\delta\delta^\top$ and $\sum w\delta$."""
    if second.ndim == first.ndim:
        return second + shift * (2 * first + mass * shift)
    cross = jnp.outer(shift, first)
    return second + cross + cross.T + mass * jnp.outer(shift, shift)


@recenter.register(Normal)
@recenter.register(SphericalNormal)
@recenter.register(MultivariateNormal)
def _moments(old, stats: Moments, new) -> Moments:
    shift = old.loc - new.loc
    second = _second(stats.second, stats.first, stats.count, shift)
    return Moments(stats.count, stats.first + stats.count * shift, second)


@recenter.register(StudentT)
@recenter.register(MultivariateStudentT)
def _scale_mixture_moments(old, stats: ScaleMixtureMoments, new) -> ScaleMixtureMoments:
    shift = old.loc - new.loc
    second = _second(stats.second, stats.first, stats.weight, shift)
    return stats._replace(first=stats.first + stats.weight * shift, second=second)


@recenter.register(AbstractLinear)
def _regression_moments(old: AbstractLinear, stats: RegressionMoments, new: AbstractLinear) -> RegressionMoments:
    line = lambda member: jnp.concatenate([member.matrix, member.offset[:, None]], axis=1)
    shift = line(old) - line(new)
    moved = matmul(shift, stats.design)
    both = old.contract(shift, stats.cross) + old.contract(stats.cross, shift)
    return RegressionMoments(stats.design, stats.cross + moved, stats.residual + both + old.contract(moved, shift))

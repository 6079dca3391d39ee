"""Constraints, said once on the field; maps between a model and its unconstrained twin.

`probs: Float[Array, "k"] = param(simplex)` declares a trainable parameter and its domain. Methods
that need free coordinates call `split`; nobody else ever sees a raw value. Fields without `param`
do not train. `fixed()` marks a subtree (a prior) that never trains, whatever its fields declare. `network()` marks a
subtree from elsewhere (an Equinox network), which declares nothing and of which every floating array trains.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from ._linalg import cholesky
from ._typing import PRNGKey
from ._validate import as_float


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A domain and an exact pair of maps to and from unconstrained space.

    `rank` is the number of trailing axes of one constrained value; `dimension` counts its degrees
    of freedom from that trailing shape. Values on the boundary (a zero probability) map to an
    infinite raw value and back without NaN. `free` is a mask of the entries that train; the others keep their value.
    """

    name: str
    to_raw: Callable[[Array], Array]
    from_raw: Callable[[Array], Array]
    rank: int = 0
    dimension: Callable[..., int] = lambda *shape: 1
    free: Any = dataclasses.field(default=None, compare=False)

    def __repr__(self):
        return self.name

    def count(self, value: Array) -> int:
        """Free parameters in an array of such values."""
        if self.free is not None and not isinstance(self.free, jax.core.Tracer):
            return int(np.sum(self.free))
        batch = value.shape[: value.ndim - self.rank]
        return int(np.prod(batch, dtype=int)) * self.dimension(*value.shape[value.ndim - self.rank :])


def _diagonal(a):
    return jnp.diagonal(a, axis1=-2, axis2=-1)


def diagonal_matrix(v: Array) -> Array:
    """Diagonal matrices from the last axis of an array."""
    d = v.shape[-1]
    return v[..., None] * jnp.eye(d, dtype=v.dtype).reshape((1,) * (v.ndim - 1) + (d, d))


def _factor_to_raw(factor):
    return jnp.tril(factor, -1) + diagonal_matrix(jnp.log(_diagonal(factor)))


def _factor_from_raw(raw):
    return jnp.tril(raw, -1) + diagonal_matrix(jnp.exp(_diagonal(raw)))


def _batched_cholesky(a):
    factor = lambda m: cholesky(m).factor
    for _ in range(a.ndim - 2):
        factor = jax.vmap(factor)
    return factor(a)


def _pd_from_raw(raw):
    factor = _factor_from_raw(raw)
    return factor @ jnp.swapaxes(factor, -1, -2)


def _ordered_to_raw(x):
    return jnp.concatenate([x[..., :1], jnp.log(jnp.diff(x, axis=-1))], axis=-1)


def _ordered_from_raw(raw):
    return jnp.cumsum(jnp.concatenate([raw[..., :1], jnp.exp(raw[..., 1:])], axis=-1), axis=-1)


real = Constraint("real", lambda x: x, lambda x: x)
positive = Constraint("positive", jnp.log, jnp.exp)
unit_interval = Constraint("unit_interval", jax.scipy.special.logit, jax.nn.sigmoid)
simplex = Constraint("simplex", jnp.log, lambda r: jax.nn.softmax(r, axis=-1), 1, lambda k: k - 1)
ordered = Constraint("ordered", _ordered_to_raw, _ordered_from_raw, 1, lambda k: k)
lower_triangular = Constraint("lower_triangular", _factor_to_raw, _factor_from_raw, 2, lambda d, _: d * (d + 1) // 2)
positive_definite = Constraint(
    "positive_definite", lambda a: _factor_to_raw(_batched_cholesky(a)), _pd_from_raw, 2, lambda d, _: d * (d + 1) // 2
)


def above(bound: float | int | Array) -> Constraint:
    """Values greater than `bound` (elementwise).

    >>> above(2.0).from_raw(jnp.zeros(())).item()
    3.0
    """
    return Constraint("above", lambda x: jnp.log(x - bound), lambda r: bound + jnp.exp(r))


def definite_above(floor: Array | None) -> Constraint:
    """Positive definite and, where a floor is given, above the diagonal matrix of it: one domain for every method."""
    if floor is None:
        return positive_definite
    return Constraint(
        "positive_definite_above_floor",
        lambda a: positive_definite.to_raw(a - diagonal_matrix(floor)),
        lambda raw: positive_definite.from_raw(raw) + diagonal_matrix(floor),
        positive_definite.rank,
        positive_definite.dimension,
    )


def only(constraint: Constraint, free: Array | None) -> Constraint:
    """The same domain, of which only the entries marked in `free` train (all of them when it is `None`)."""
    return dataclasses.replace(constraint, free=free)


def param(constraint: Constraint | Callable[[Any], Constraint], **kwargs) -> Any:
    """A trainable field with its domain; a callable receives the module and returns the constraint.

    >>> class Coin(eqx.Module):
    ...     bias: jax.Array = param(unit_interval)
    >>> unconstrain(Coin(jnp.array(0.5))).bias.item()
    0.0
    """
    return eqx.field(metadata={"constraint": constraint}, converter=as_float, **kwargs)


def fixed(**kwargs) -> Any:
    """A field whose whole subtree never trains: priors, floors, frozen leaves.

    >>> class Shifted(eqx.Module):
    ...     loc: jax.Array = param(real)
    ...     origin: jax.Array = fixed()
    >>> num_parameters(Shifted(jnp.zeros(3), jnp.ones(3)))
    3
    """
    return eqx.field(metadata={"fixed": True}, **kwargs)


def network(**kwargs) -> Any:
    """A field for any Equinox module: its floating arrays train, except in modules that use `param` themselves."""
    return eqx.field(metadata={"network": True}, **kwargs)


def _declares(node: eqx.Module) -> bool:
    """Whether a module says itself which of its fields train."""
    return any(word in f.metadata for f in dataclasses.fields(node) for word in ("constraint", "fixed", "network"))


def _is_module(node):
    return isinstance(node, eqx.Module)


def _walk(node: PyTree, on_param: Callable, on_rest: Callable, inside_network: bool = False) -> PyTree:
    """Rebuild a module, visiting declared parameters and everything else."""
    if not _is_module(node):
        free = lambda leaf: inside_network and eqx.is_inexact_array(leaf)
        return jax.tree_util.tree_map(lambda leaf: on_param(real, leaf) if free(leaf) else on_rest(leaf), node)
    inside_network = inside_network and not _declares(node)
    new = object.__new__(type(node))
    for field in dataclasses.fields(node):
        try:
            value = getattr(node, field.name)
        except AttributeError:
            continue
        if field.metadata.get("fixed", False):
            value = jax.tree_util.tree_map(on_rest, value)
        elif "constraint" in field.metadata and value is not None:
            constraint = field.metadata["constraint"]
            constraint = constraint if isinstance(constraint, Constraint) else constraint(node)
            value = on_param(constraint, value)
        elif not field.metadata.get("static", False):
            free = inside_network or field.metadata.get("network", False)
            visit = lambda n, free=free: _walk(n, on_param, on_rest, free)
            value = jax.tree_util.tree_map(visit, value, is_leaf=_is_module)
        object.__setattr__(new, field.name, value)
    return new


def unconstrain(model: PyTree) -> PyTree:
    """The same tree with every declared parameter in raw coordinates.

    >>> from probml_jax.distributions import Bernoulli
    >>> unconstrain(Bernoulli(probs=0.5)).probs.item()
    0.0
    """
    return _walk(model, lambda c, v: c.to_raw(v), lambda v: v)


def constrain(raw: PyTree) -> PyTree:
    """Inverse of `unconstrain`.

    >>> from probml_jax.distributions import Normal
    >>> constrain(unconstrain(Normal(loc=0.0, scale=2.0))).scale.item()
    2.0
    """
    return _walk(raw, lambda c, v: c.from_raw(v), lambda v: v)


def trainable(model: PyTree) -> PyTree:
    """A tree of booleans: which leaves are declared parameters outside `fixed` subtrees.

    >>> from probml_jax.distributions import Binomial
    >>> mask = trainable(Binomial(probs=0.3, total_count=10))
    >>> mask.probs, mask.total_count
    (True, False)
    """
    return _walk(model, lambda c, v: True, lambda v: False)


def movable(model: PyTree) -> PyTree:
    """For every declared parameter, which of its entries train: a tree of masks, in the shape of `trainable`."""
    everything = lambda c, v: jnp.ones(v.shape, bool) if c.free is None else jnp.broadcast_to(c.free, v.shape)
    return _walk(model, everything, lambda v: None)


def num_parameters(model: PyTree) -> int:
    """Degrees of freedom of a model: what BIC and AIC count.

    >>> from probml_jax.distributions import Categorical, MultivariateNormal
    >>> num_parameters(Categorical([0.2, 0.3, 0.5])), num_parameters(MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    (2, 9)
    """
    total = []
    _walk(model, lambda c, v: total.append(c.count(v)), lambda v: v)
    return sum(total)


def perturbed(key: PRNGKey, model: PyTree, scale: float | Array = 1.0) -> PyTree:
    """The model with its parameters moved at random, by normal deviates times `scale` in unconstrained coordinates.

    A start for restarts: `jax.vmap(lambda k: fit(perturbed(k, model), data, LBFGS()))(keys)`, then `best_of`.
    Positive parameters are multiplied by log-normal factors; what is pinned (a zero noise) or fixed stays.

    >>> import jax.random as jr, probml_jax as pml
    >>> start = pml.distributions.Poisson(jnp.array([3.0]))
    >>> bool(perturbed(jr.key(0), start).rate[0] > 0), round(float(perturbed(jr.key(0), start, 0.0).rate[0]), 4)
    (True, 3.0)
    """
    free, rebuild = split(model)
    flat, unravel = ravel_pytree(free)
    return rebuild(unravel(flat + scale * jax.random.normal(key, flat.shape, flat.dtype)))


def split(model: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Free coordinates of a model, and the function that rebuilds the model from them.

    Raw values at infinity (a structural zero of a transition matrix, a probability of one) and entries that are
    not `free` are pinned: optimizers see a finite 0 there and the rebuilt model keeps the value.
    """
    raw, rest = eqx.partition(unconstrain(model), trainable(model))
    finite = jax.tree_util.tree_map(lambda r, free: jnp.isfinite(r) & free, raw, movable(model))
    free = jax.tree_util.tree_map(lambda r, ok: jnp.where(ok, r, 0.0), raw, finite)
    pinned = jax.lax.stop_gradient(raw)

    def rebuild(values: PyTree) -> PyTree:
        kept = jax.tree_util.tree_map(lambda v, r, ok: jnp.where(ok, v, r), values, pinned, finite)
        return constrain(eqx.combine(kept, rest))

    return free, rebuild

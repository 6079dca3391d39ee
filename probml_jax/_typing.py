"""Array types and axis names used in every annotation.

Axes: `n` units, `t` time, `k` components or states, `d` features, `c` classes, `p` latent dimension.
"""

from typing import Any, TypeAlias

from jaxtyping import Array, Bool, Float, Int, Key, PyTree

Scalar: TypeAlias = Float[Array, ""]
Flag: TypeAlias = Bool[Array, ""]
PRNGKey: TypeAlias = Key[Array, ""]
Event: TypeAlias = PyTree
Statistics: TypeAlias = PyTree
Data: TypeAlias = Any

__all__ = ["Array", "Bool", "Data", "Event", "Flag", "Float", "Int", "PRNGKey", "PyTree", "Scalar", "Statistics"]

"""The linear-chain conditional random field."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._constraint import fixed, network, param, real
from .._model import AbstractModel
from .._typing import Flag, Scalar
from .._validate import as_float, check_shape, float_dtype
from ..inference import chain
from .grammar import Constraints, as_constraints
from .hmm import HMM
from .scores import EmissionScores, SparseScores
from .tagger import AbstractTagger, Complete, Potentials


class LinearChainCRF(AbstractTagger):
    r"""$p(y \mid x) \propto \exp\big(a_{y_1} + \sum_s u_s(y_s, x) + \sum_{s>1} T_s(y_{s-1}, y_s) + b_{y_t}\big)$.

    Globally normalized: a label sequence competes with all others. `scores` gives $u$: `SparseScores`, `DenseScores`,
    a sum of them, or any Equinox network `x -> (t, k)`. `transition` is a matrix `(k, k)`, or a module
    `x -> (t-1, k, k)`; `start` and `end` are scores of the first and the last label (`None`: none).
    `constraints` (a matrix of allowed transitions, or `Constraints`) give all else exactly zero probability, and no
    gradient. `active (k, k)`: transitions that have a weight; the others score 0 for good.
    `l2` is CRFsuite's `c2`: the objective has $-\lambda\sum\theta^2$.

    Learn with `LBFGS` (all data at once, best in `Buckets`) or `Gradient` (mini-batches). Cost: $O(t k^2)$.
    Reference: Lafferty, McCallum and Pereira (2001); Murphy (2012), section 19.6.

    >>> crf = LinearChainCRF.sparse(num_features=2, num_labels=2)
    >>> round(float(crf.log_prob((jnp.array([[0], [1], [0]]), jnp.array([0, 1, 0])))), 4)  # three fair coins
    -2.0794
    """

    scores: Any = network()
    transition: Any = network()
    start: Float[Array, "k"] | None = param(real)
    end: Float[Array, "k"] | None = param(real)
    constraints: Constraints | None
    active: Bool[Array, "k k"] | None
    l2: Float[Array, ""] = fixed(converter=as_float)
    num_labels: int = eqx.field(static=True)

    def __init__(
        self,
        scores: Any,
        num_labels: int,
        *,
        transition: Any = None,
        start: Any = 0.0,
        end: Any = 0.0,
        constraints: Any = None,
        active: Any = None,
        l2: Any = 0.0,
    ):
        k, dtype = num_labels, float_dtype(scores)
        vector = lambda a: None if a is None else jnp.broadcast_to(jnp.asarray(as_float(a), dtype), (k,))
        self.scores, self.num_labels = scores, k
        self.start, self.end = vector(start), vector(end)
        self.transition = jnp.zeros((k, k), dtype) if transition is None else transition
        self.constraints = as_constraints(constraints, k)
        self.active = None if active is None else jnp.asarray(active).astype(bool)
        self.l2 = jnp.asarray(as_float(l2), dtype)

    def __check_init__(self):
        if not callable(self.transition):
            check_shape("transition", self.transition, (self.num_labels, self.num_labels))

    @classmethod
    def sparse(
        cls,
        num_features: int,
        num_labels: int,
        *,
        l2: Any = 0.0,
        constraints: Any = None,
        observed: Any = None,
        boundaries: bool = True,
        dtype: Any = None,
    ) -> Self:
        """A CRF over sparse features, all weights zero.

        `observed` (from `FeatureEncoder.observed`) gives weights only to what was seen: pairs of feature and label,
        transitions; as CRFsuite does. `boundaries=False` leaves out the scores of first and last labels.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        sizes = {"num_features": num_features, "num_labels": num_labels}
        if observed is None:
            scores = SparseScores(jnp.zeros((num_features, num_labels), dtype), **sizes)
        else:
            scores = SparseScores(jnp.zeros(len(observed.features), dtype), *observed[:2], **sizes)
        edge = 0.0 if boundaries else None
        active = None if observed is None else observed.transitions
        return cls(scores, num_labels, start=edge, end=edge, constraints=constraints, active=active, l2=l2)

    @classmethod
    def from_hmm(cls, hmm: HMM) -> Self:
        """The CRF that gives an HMM's posterior of states; its parameters are the HMM's emissions and log-tables."""
        initial, transition = hmm.log_initial(), hmm.log_transition()
        free = jnp.ones(hmm.num_states, bool)
        constraints = Constraints(initial > -jnp.inf, transition > -jnp.inf, free)
        finite = lambda a: jnp.where(a == -jnp.inf, 0, a)
        scores = EmissionScores(hmm.emission)
        return cls(
            scores, hmm.num_states, transition=finite(transition), start=finite(initial), constraints=constraints
        )

    def moves(self, x: PyTree) -> Float[Array, "*steps k k"]:
        """Transition scores; `-inf` where forbidden."""
        table = self.transition(x) if callable(self.transition) else self.transition
        allowed = lambda a: a if table.ndim == 2 else a[None]
        table = table if self.active is None else jnp.where(allowed(self.active), table, 0)
        return table if self.constraints is None else jnp.where(allowed(self.constraints.transition), table, -jnp.inf)

    def wire(self, scores: Float[Array, "t k"], x: PyTree, mask: Bool[Array, "t"]) -> Potentials:
        first = jnp.zeros_like(scores[0]) if self.start is None else self.start
        last = jnp.zeros_like(scores[0]) if self.end is None else self.end
        if self.constraints is not None:
            first = jnp.where(self.constraints.start, first, -jnp.inf)
            last = jnp.where(self.constraints.end, last, -jnp.inf)
        ends = jnp.arange(mask.size) == jnp.sum(mask) - 1
        return Potentials(first, self.moves(x), jnp.where(ends[:, None], scores + last[None], scores), mask)

    def log_normalizer(self, potentials: Potentials) -> Scalar:
        return chain.log_partition(*potentials)


class SoftmaxMargin(AbstractModel):
    r"""A CRF trained so that wrong labels lose by a margin: rivals gain `cost` for every label they get wrong.

    $\sum_i s_i(y_i) - \log\sum_y \exp(s_i(y) + c\,|\{s: y_s \ne y_{is}\}|)$. Unknown labels cost nothing.
    `fit(softmax_margin(crf, 1.0), data, LBFGS()).model.tagger` is the CRF. Reference: Gimpel and Smith (2010).
    """

    tagger: LinearChainCRF
    cost: Float[Array, ""] = fixed(converter=as_float)

    def log_likelihood(self, data: Any, weights: Float[Array, "n"]) -> Scalar:
        def rival(potentials: Potentials, labels: Array | Complete) -> Potentials:
            labels = labels.labels if isinstance(labels, Complete) else labels
            each = jnp.arange(self.tagger.num_labels)[None, :]
            if labels.ndim == 1:
                wrong = (labels[:, None] != each) & (labels[:, None] != -1)
            else:
                wrong = ~labels.astype(bool)
            gain = jnp.where(wrong, self.cost.astype(potentials.log_likelihood.dtype), 0)
            return potentials._replace(log_likelihood=potentials.log_likelihood + gain)

        return self.tagger.conditional_score(data, weights, rival)

    def log_prior(self) -> Scalar:
        return self.tagger.log_prior()

    def validate(self, data: Any) -> None:
        self.tagger.validate(data)

    def degenerate(self) -> Flag:
        return self.tagger.degenerate()


def softmax_margin(crf: LinearChainCRF, cost: float = 1.0) -> SoftmaxMargin:
    """A CRF to be trained with a margin of `cost` per wrong label.

    >>> import jax.numpy as jnp, probml_jax as pml
    >>> crf = LinearChainCRF(scores=pml.sequences.DenseScores.zeros(1, 2), num_labels=2)
    >>> data = jnp.array([[[1.0], [-1.0]]]), jnp.array([[0, 1]])
    >>> softmax_margin(crf, 1.0).log_likelihood(data, jnp.ones(1)) < crf.log_likelihood(data, jnp.ones(1))
    Array(True, dtype=bool)
    """
    return SoftmaxMargin(crf, cost)

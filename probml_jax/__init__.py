"""Differentiable probabilistic models in JAX: one interface for EM, variational Bayes and gradients.

Verbs and bases live here; families, priors and models in their rooms: `pml.distributions`, `pml.conjugate`,
`pml.mixtures`, `pml.factors`, `pml.classifiers`, `pml.density`, `pml.sequences`, `pml.gaussian_processes`,
`pml.graphs`; what acts on their answers in `pml.decision`, `pml.selection`; engines on arrays in `pml.inference`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import conjugate as conjugate
from . import distributions as distributions
from . import inference as inference
from . import mixtures as mixtures
from ._batches import Batches as Batches
from ._buckets import Buckets as Buckets
from ._conditional import AbstractJointModel as AbstractJointModel
from ._conditional import Conditional as Conditional
from ._conditional import conditional as conditional
from ._conjugate import AbstractConjugatePrior as AbstractConjugatePrior
from ._conjugate import AbstractLocationPrior as AbstractLocationPrior
from ._constraint import above as above
from ._constraint import constrain as constrain
from ._constraint import fixed as fixed
from ._constraint import lower_triangular as lower_triangular
from ._constraint import network as network
from ._constraint import num_parameters as num_parameters
from ._constraint import ordered as ordered
from ._constraint import param as param
from ._constraint import perturbed as perturbed
from ._constraint import positive as positive
from ._constraint import positive_definite as positive_definite
from ._constraint import real as real
from ._constraint import simplex as simplex
from ._constraint import trainable as trainable
from ._constraint import unconstrain as unconstrain
from ._constraint import unit_interval as unit_interval
from ._distribution import AbstractDistribution as AbstractDistribution
from ._distribution import AbstractFamily as AbstractFamily
from ._estimate import MAP as MAP
from ._estimate import ML as ML
from ._estimate import AbstractEstimate as AbstractEstimate
from ._estimate import Bayes as Bayes
from ._estimate import Frozen as Frozen
from ._estimate import Known as Known
from ._estimate import Nested as Nested
from ._exponential_family import AbstractExponentialFamily as AbstractExponentialFamily
from ._fit import fit as fit
from ._method import AbstractAdditiveMethod as AbstractAdditiveMethod
from ._method import AbstractMethod as AbstractMethod
from ._model import AbstractAuditedModel as AbstractAuditedModel
from ._model import AbstractExchangeableModel as AbstractExchangeableModel
from ._model import AbstractLatentModel as AbstractLatentModel
from ._model import AbstractModel as AbstractModel
from ._model import AbstractPreparedModel as AbstractPreparedModel
from ._model import AbstractStandardizedModel as AbstractStandardizedModel
from ._model import objective as objective
from ._outcome import Fit as Fit
from ._outcome import Status as Status
from ._outcome import best_of as best_of
from ._product import Product as Product
from ._race import race as race
from ._save import load as load
from ._save import save as save
from ._stack import AbstractStack as AbstractStack
from ._stack import Stacked as Stacked
from ._stack import Tied as Tied
from .inference.blocks import in_blocks as in_blocks
from .methods import EM as EM
from .methods import LBFGS as LBFGS
from .methods import GeneralizedEM as GeneralizedEM
from .methods import Gradient as Gradient
from .methods import Newton as Newton
from .methods import OnlineEM as OnlineEM

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import classifiers as classifiers
    from . import decision as decision
    from . import density as density
    from . import factors as factors
    from . import gaussian_processes as gaussian_processes
    from . import graphs as graphs
    from . import plotting as plotting
    from . import selection as selection
    from . import sequences as sequences
    from . import sharding as sharding

# rooms that are imported when they are first used: `import probml_jax` stays quick
_LATER = (
    "classifiers",
    "decision",
    "density",
    "factors",
    "gaussian_processes",
    "graphs",
    "plotting",
    "selection",
    "sequences",
    "sharding",
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])

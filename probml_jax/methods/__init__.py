"""Learning algorithms, one per file. They know `AbstractModel` and nothing else."""

from .em import EM as EM
from .gradient import GeneralizedEM as GeneralizedEM
from .gradient import Gradient as Gradient
from .lbfgs import LBFGS as LBFGS
from .newton import Newton as Newton
from .online_em import OnlineEM as OnlineEM

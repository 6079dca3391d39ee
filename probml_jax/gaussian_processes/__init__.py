"""Gaussian processes: kernels, regression, classification, O(n) inference in one dimension, inducing points."""

from . import kernels as kernels
from . import means as means
from .classification import GaussianProcessClassifier as GaussianProcessClassifier
from .evidence import LeaveOneOut as LeaveOneOut
from .pathwise import sample_function as sample_function
from .regression import GaussianProcess as GaussianProcess
from .sparse import SparseGaussianProcess as SparseGaussianProcess
from .state_space import Markov as Markov
from .state_space import markov as markov

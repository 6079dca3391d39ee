"""Thin estimators for people who want `fit` and `predict`: scikit-learn's names around this library's models.

Needs the extra `probml_jax[sklearn]`. Every estimator keeps its fitted model, a pytree, as `model_`.
"""

from .cluster import KMeans as KMeans
from .crf import CRF as CRF
from .decomposition import PCA as PCA
from .decomposition import FactorAnalysis as FactorAnalysis
from .density import KernelDensity as KernelDensity
from .discrete_naive_bayes import BernoulliNB as BernoulliNB
from .discrete_naive_bayes import CategoricalNB as CategoricalNB
from .discrete_naive_bayes import MultinomialNB as MultinomialNB
from .discriminant_analysis import LinearDiscriminantAnalysis as LinearDiscriminantAnalysis
from .discriminant_analysis import QuadraticDiscriminantAnalysis as QuadraticDiscriminantAnalysis
from .gaussian_mixture import BayesianGaussianMixture as BayesianGaussianMixture
from .gaussian_mixture import GaussianMixture as GaussianMixture
from .gaussian_process import GaussianProcessClassifier as GaussianProcessClassifier
from .gaussian_process import GaussianProcessRegressor as GaussianProcessRegressor
from .linear_model import LogisticRegression as LogisticRegression
from .mixture import BernoulliMixture as BernoulliMixture
from .naive_bayes import GaussianNB as GaussianNB
from .sequences import GaussianHMM as GaussianHMM

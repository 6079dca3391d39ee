"""Classifiers: generative ones with any class-conditional, logistic and softmax regression, Laplace posteriors."""

from .._conditional import conditional as conditional
from .boundary import Quadratic as Quadratic
from .composite import hmm_classifier as hmm_classifier
from .composite import kde_classifier as kde_classifier
from .composite import mixture_classifier as mixture_classifier
from .discrete import bernoulli_naive_bayes as bernoulli_naive_bayes
from .discrete import categorical_naive_bayes as categorical_naive_bayes
from .discrete import mixed_naive_bayes as mixed_naive_bayes
from .discrete import multinomial_naive_bayes as multinomial_naive_bayes
from .discrete import poisson_naive_bayes as poisson_naive_bayes
from .discrete import table_classifier as table_classifier
from .gaussian import gaussian_classifier as gaussian_classifier
from .gaussian import gaussian_naive_bayes as gaussian_naive_bayes
from .gaussian import lda as lda
from .gaussian import qda as qda
from .generative import GenerativeClassifier as GenerativeClassifier
from .laplace import LaplacePosterior as LaplacePosterior
from .laplace import laplace as laplace
from .linear import AbstractLinearClassifier as AbstractLinearClassifier
from .linear import LogisticRegression as LogisticRegression
from .linear import SoftmaxRegression as SoftmaxRegression
from .linear import logistic_regression as logistic_regression
from .linear import softmax_regression as softmax_regression

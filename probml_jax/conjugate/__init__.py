"""Conjugate priors: a prior over the members of a family, closed under data. One pair per file."""

from .beta_bernoulli import BetaBernoulli as BetaBernoulli
from .beta_binomial import BetaBinomial as BetaBinomial
from .dirichlet_categorical import DirichletCategorical as DirichletCategorical
from .dirichlet_multinomial import DirichletMultinomial as DirichletMultinomial
from .gamma_exponential import GammaExponential as GammaExponential
from .gamma_poisson import GammaPoisson as GammaPoisson
from .inverse_wishart_known_mean import InverseWishartKnownMean as InverseWishartKnownMean
from .matrix_normal_inverse_chi_squared import MatrixNormalInverseChiSquared as MatrixNormalInverseChiSquared
from .matrix_normal_inverse_wishart import MatrixNormalInverseWishart as MatrixNormalInverseWishart
from .multivariate_normal_known_covariance import (
    MultivariateNormalKnownCovariance as MultivariateNormalKnownCovariance,
)
from .normal_inverse_chi_squared import NormalInverseChiSquared as NormalInverseChiSquared
from .normal_inverse_wishart import NormalInverseWishart as NormalInverseWishart
from .normal_known_variance import NormalKnownVariance as NormalKnownVariance
from .regression import AbstractRegressionPrior as AbstractRegressionPrior
from .spherical_matrix_normal_inverse_chi_squared import (
    SphericalMatrixNormalInverseChiSquared as SphericalMatrixNormalInverseChiSquared,
)
from .spherical_normal_inverse_chi_squared import (
    SphericalNormalInverseChiSquared as SphericalNormalInverseChiSquared,
)

"""Continuous latent variables and linear maps: regression, principal components, factor analysis."""

from ..inference.rotation import varimax as varimax
from .build import factor_analysis as factor_analysis
from .build import mixture_of_factor_analysers as mixture_of_factor_analysers
from .factor_analysis import AbstractFactorModel as AbstractFactorModel
from .factor_analysis import FactorAnalysis as FactorAnalysis
from .moments import SecondMoments as SecondMoments
from .moments import summarize as summarize
from .pca import PCA as PCA
from .ppca import PPCA as PPCA
from .ppca import choose_dimension as choose_dimension
from .ppca import dimension_evidence as dimension_evidence
from .regression import LinearRegression as LinearRegression

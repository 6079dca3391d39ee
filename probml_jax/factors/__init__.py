"""Continuous latent variables and linear maps: regression, principal components, factor analysis."""

from .regression import LinearRegression as LinearRegression

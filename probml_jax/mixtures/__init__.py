"""Mixture models and k-means."""

from .build import bernoulli_mixture as bernoulli_mixture
from .build import categorical_mixture as categorical_mixture
from .build import gaussian_mixture as gaussian_mixture
from .build import multinomial_mixture as multinomial_mixture
from .build import poisson_mixture as poisson_mixture
from .build import student_t_mixture as student_t_mixture
from .kmeans import KMeans as KMeans
from .kmeans import kmeans as kmeans
from .mixture import Mixture as Mixture

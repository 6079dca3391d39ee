"""Density estimation without a parametric form."""

from .kernel_density import KernelDensity as KernelDensity
from .kernels import KERNELS as KERNELS
from .kernels import Kernel as Kernel

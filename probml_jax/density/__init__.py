"""Density estimation."""

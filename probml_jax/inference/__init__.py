"""Algorithms on arrays: every scan, elimination and message of the library. No model, no distribution."""

from . import seeding as seeding

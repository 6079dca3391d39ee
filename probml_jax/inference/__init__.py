"""Algorithms on arrays: every scan, elimination and message of the library. No model, no distribution."""

from . import chain as chain
from . import elimination as elimination
from . import kalman as kalman
from . import seeding as seeding

"""Registries: one line here subjects a newcomer to every law of its kind.

Each entry is a function of a dtype, so that every law runs in float32 and in float64.
"""

# ---------------------------------------------------------------- distributions


# ---------------------------------------------------------------- conjugate pairs


# ---------------------------------------------------------------- models

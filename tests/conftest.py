"""Strict mode for every test: runtime type checks, no silent rank promotion, 64-bit available."""

import gc
import os
import pathlib

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are rendered, not shown
# tracing makes many objects that live long: looking through all of them again and again is a tenth of the time.
# Compiled programs are let go below, when caches are cleared.
gc.set_threshold(200_000, 20, 100)
_cache = pathlib.Path(__file__).parent.parent / ".cache" / "jax"
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4)  # for what runs on many devices; all else runs on the first
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", os.environ.get("PROBML_JAX_CACHE", str(_cache)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)  # both workers, and the next run

with install_import_hook("probml_jax", "strict.typecheck"):
    import probml_jax
    import probml_jax.classifiers
    import probml_jax.decision
    import probml_jax.density
    import probml_jax.factors
    import probml_jax.gaussian_processes
    import probml_jax.graphs
    import probml_jax.plotting
    import probml_jax.selection
    import probml_jax.sequences
    import probml_jax.sharding  # noqa: F401


_LONG = ("test_notebooks", "test_documents", "test_documentation", "test_many_hosts")


def pytest_collection_modifyitems(items):
    """Tests of one registry entry run in one worker, where they share what has been compiled; long ones come first, so
    that no worker is left alone with them at the end."""
    items.sort(key=lambda item: item.path.stem not in _LONG)
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{name or item.name}"))


_first_states = {}


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(request):
    """A module's generator starts every test where its import left it: workers share tests out as they please."""
    generator = getattr(request.module, "rng", None)
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = _first_states.setdefault(request.module.__name__, bits.state)


_tests_since = 0
_maps = pathlib.Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def _bounded_caches():
    """Thousands of compiled programs exhaust a process's memory maps (65,530 on Linux): drop them in time."""
    global _tests_since
    _tests_since += 1
    many = _tests_since % 5 == 0 and _maps.exists() and len(_maps.read_bytes().splitlines()) > 20_000
    if many or _tests_since % 150 == 0:
        jax.clear_caches()
        gc.collect()
    return

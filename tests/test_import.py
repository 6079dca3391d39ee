"""`import probml_jax` stays quick: a budget on top of JAX, Equinox and Optax, and nothing optional is loaded."""

import subprocess
import sys

_TIMED = """
import time, jax, equinox, optax
started = time.perf_counter()
import probml_jax
print(time.perf_counter() - started)
import sys
print(" ".join(sorted(name for name in sys.modules if "." not in name)))
print(" ".join(sorted(name for name in sys.modules if name.startswith("probml_jax."))))
"""


def _imported() -> tuple[float, set[str], set[str]]:
    done = subprocess.run([sys.executable, "-c", _TIMED], capture_output=True, text=True, check=True)
    seconds, others, own = done.stdout.splitlines()
    return float(seconds), set(others.split()), set(own.split())


def test_importing_keeps_its_budget_and_loads_nothing_optional():
    # twice what it takes on an idle machine; the best of three, since other tests run meanwhile
    runs = [_imported() for _ in range(3)]
    assert min(seconds for seconds, _, _ in runs) < 0.6
    _, others, own = runs[0]
    assert not others & {"matplotlib", "sklearn", "pandas", "tqdm", "IPython", "scipy.stats", "statsmodels"}
    for room in ("classifiers", "sequences", "graphs", "gaussian_processes", "plotting", "sklearn", "sharding"):
        assert f"probml_jax.{room}" not in own


def test_importing_configures_nothing_and_starts_no_device():
    script = "import jax, probml_jax; print(jax.config.jax_enable_x64, jax._src.xla_bridge.backends_are_initialized())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

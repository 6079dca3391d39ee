"""Graphical models against pgmpy and PGMax (where installed), and against plain NumPy.

The peers are not in the development requirements (pgmpy needs torch): `pip install pgmpy pgmax` in an environment of
its own, then `python -m benchmarks graphs`. Rows of absent peers are left out.
"""

import gzip
import importlib.util
import logging
import pathlib
import time
import types
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import probml_jax as pml
from benchmarks.timing import Row, measure

NETWORKS = pathlib.Path(__file__).parent.parent / "tests" / "reference" / "networks"
_SEED, _COUPLING = 0, 0.8


def _present(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _pgmpy_marginals(text: str, names: tuple[str, ...], evidence: list[dict[str, str]]) -> tuple[float, list[dict]]:
    """Seconds, and all marginals for every row: one query per unobserved variable, pgmpy's own fastest way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        from pgmpy.inference import VariableElimination
        from pgmpy.readwrite import BIFReader

        peer = VariableElimination(BIFReader(string=text).get_model())
        results = []
        started = time.perf_counter()
        for row in evidence:
            ask = lambda name, row=row: peer.query([name], evidence=row, show_progress=False)
            results.append({name: ask(name) for name in names if name not in row})
        seconds = time.perf_counter() - started
        logging.disable(logging.NOTSET)
    return seconds, results


def evidence_rows(num: int = 1000) -> list[Row]:
    if not _present("pgmpy"):
        return []
    path = NETWORKS / "alarm.bif.gz"
    net = pml.graphs.read_bif(path)
    net = jax.tree_util.tree_map(lambda a: a.astype("float32"), net)
    rows = net.sample(jr.key(_SEED), num)
    rows = jnp.where(jr.bernoulli(jr.key(1), 0.2, rows.shape), rows, -1)
    host = np.asarray(rows)
    named = lambda row: {v.name: v.states[s] for v, s in zip(net.variables, row, strict=True) if s >= 0}
    seconds, theirs = _pgmpy_marginals(gzip.decompress(path.read_bytes()).decode(), net.names, [*map(named, host)])
    ask = jax.jit(jax.vmap(net.marginals_from_array))
    mine = measure(lambda: ask(rows), repeats=15)
    found = ask(rows)
    worst = 0.0
    for i, row in enumerate(theirs):
        for name, query in row.items():
            states = net.variables[net.index(name)].states
            order = [query.state_names[name].index(s) for s in states]
            worst = max(worst, float(np.abs(np.asarray(query.values)[order] - np.asarray(found[name][i])).max()))
    note = f"all marginals, a fifth of 37 variables observed; largest difference {worst:.0e} in float32"
    return [Row(f"alarm, {num:,} rows of evidence", "pgmpy", seconds, mine.run, mine.first, 100, note)]


def _potts(n: int = 64, k: int = 4) -> tuple[np.ndarray, pml.graphs.PottsGrid]:
    field = np.random.default_rng(_SEED).normal(size=(n, n, k)).astype("float32")
    coupling = jnp.asarray(_COUPLING, "float32")
    return field, pml.graphs.potts_grid(n, n, num_labels=k, coupling=coupling, field=jnp.asarray(field))


def loopy_propagation(sweeps: int = 50) -> list[Row]:
    if not _present("pgmax"):
        return []
    import jax.extend.backend

    if getattr(jax.lib, "xla_bridge", None) is None:  # PGMax 0.6.1 asks for a module that JAX has moved
        jax.lib.xla_bridge = types.SimpleNamespace(get_backend=jax.extend.backend.get_backend)
    from pgmax import fgraph, fgroup, infer, vgroup

    field, grid = _potts()
    n, _, k = field.shape
    sites = vgroup.NDVarArray(num_states=k, shape=(n, n))
    graph = fgraph.FactorGraph(variable_groups=sites)
    pairs = [[sites[i, j], sites[i + 1, j]] for i in range(n - 1) for j in range(n)]
    pairs += [[sites[i, j], sites[i, j + 1]] for i in range(n) for j in range(n - 1)]
    table = _COUPLING * np.eye(k, dtype="float32")
    graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=table))
    with jax.enable_x64(False):
        peer = infer.build_inferer(graph.bp_state, backend="bp")
        ready = peer.init(evidence_updates={sites: field})
        propagate = jax.jit(lambda arrays: peer.run(arrays, num_iters=sweeps, damping=0.0, temperature=1.0))
        theirs = measure(lambda: propagate(ready), repeats=9)
        beliefs = infer.get_marginals(peer.get_beliefs(propagate(ready)))[sites]
    mine = measure(lambda: grid.belief_propagation(num_sweeps=sweeps, tolerance=0.0), repeats=25)
    found = grid.belief_propagation(num_sweeps=sweeps, tolerance=0.0)
    off = float(np.abs(np.asarray(beliefs) - np.asarray(found.marginals)).max())
    note = f"both {sweeps} undamped sweeps, float32, ours with the Bethe log Z; largest difference {off:.0e}"
    return [Row(f"loopy BP, {n}x{n} Potts, {k} labels", "PGMax", theirs.run, mine.run, mine.first, 3, note)]


def _numpy_sweep(rng: np.random.Generator, field: np.ndarray, states: np.ndarray) -> None:
    h, w, k = field.shape
    for i in range(h):
        for j in range(w):
            logits = field[i, j].copy()
            for a, b in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                if 0 <= a < h and 0 <= b < w:
                    logits[states[a, b]] += _COUPLING
            weights = np.exp(logits - logits.max())
            states[i, j] = min(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()), k - 1)


def gibbs(sweeps: int = 200) -> list[Row]:
    field, grid = _potts()
    rng = np.random.default_rng(_SEED)
    states = rng.integers(0, field.shape[-1], field.shape[:2])
    few = 10
    theirs = measure(lambda: [_numpy_sweep(rng, field, states) for _ in range(few)], repeats=3).run * sweeps / few
    one = measure(lambda: grid.gibbs(jr.key(0), num_sweeps=sweeps, burn_in=0, num_chains=1), repeats=9)
    many = measure(lambda: grid.gibbs(jr.key(0), num_sweeps=sweeps, burn_in=0, num_chains=16), repeats=5)
    note = f"one chain each; 16 chains take {many.run / one.run:.1f} times one. With frequencies, R-hat and ESS"
    return [Row(f"Gibbs, {sweeps} sweeps of 64x64, 4 labels", "NumPy loop", theirs, one.run, one.first, 50, note)]


def _transfer(n: int, coupling: float) -> float:
    spins = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)[None]) & 1)
    within = coupling * np.sum(spins[:, 1:] * spins[:, :-1], axis=1)
    kernel = np.exp(coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    log_weight = within
    for _ in range(n - 1):
        highest = log_weight.max()
        table = np.exp(log_weight - highest).reshape([2] * n)
        for axis in range(n):
            table = np.moveaxis(np.tensordot(kernel, table, ([1], [axis])), 0, axis)
        log_weight = np.log(table.reshape(-1)) + highest + within
    return float(np.logaddexp.reduce(log_weight))


def exact_ising(n: int = 16) -> list[Row]:
    coupling = float(np.log(1 + np.sqrt(2)) / 2)
    theirs = measure(lambda: _transfer(n, coupling), repeats=3)
    grid = pml.graphs.ising_grid(n, n, coupling=jnp.asarray(coupling, "float64"))
    mine = measure(grid.log_partition, repeats=3)
    both = measure(lambda: grid.marginals().log_evidence, repeats=3)
    off = abs(float(grid.log_partition()) / _transfer(n, coupling) - 1)
    note = (
        f"relative difference {off:.0e}; with all marginals {both.run:.2f} s. The transfer matrix is a special program"
    )
    return [
        Row(
            f"log Z of a {n}x{n} Ising grid, float64",
            "NumPy transfer matrix",
            theirs.run,
            mine.run,
            mine.first,
            None,
            note,
        )
    ]


def rows(data_dir=None) -> list[Row]:
    return [*evidence_rows(), *loopy_propagation(), *gibbs(), *exact_ising()]

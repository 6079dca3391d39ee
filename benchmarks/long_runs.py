"""What it costs to learn from batches, to keep checkpoints, and to save: against the same fit in memory and pickle."""

import pathlib
import pickle
import tempfile

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import probml_jax as pml
from benchmarks.timing import Row, measure

STEPS = 10


def _data(n: int, d: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, d)) * 3
    return (centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


def _fits(folder: pathlib.Path, n: int = 400_000, d: int = 16, k: int = 16) -> list[Row]:
    """Ten steps of EM on the same units: from an array, from a memory map, with a checkpoint at every step."""
    xs = _data(n, d, k)
    np.save(folder / "data.npy", xs)
    mapped = np.load(folder / "data.npy", mmap_mode="r")
    here = jnp.asarray(xs)
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs[:2000], k)
    run = lambda data, **kw: pml.fit(model, data, max_steps=STEPS, rtol=-1.0, **kw)
    memory = measure(lambda: run(here), repeats=3)
    whole = run(here).final_objective
    rows = []
    for name, data, settings in (
        ("EM from a memory map", mapped, {}),
        ("EM with a checkpoint at every step", here, {"checkpoint": folder / "run", "every": 1, "resume": False}),
        ("EM with progress", here, {"progress": True}),
    ):
        ours = measure(lambda data=data, settings=settings: run(data, **settings), repeats=3)
        gap = abs(float(run(data, **settings).final_objective / whole - 1))
        title = f"{name}, N={n:,} D={d} K={k}, {STEPS} steps, float32"
        note = f"{xs.nbytes / 1e6:.0f} MB; objective differs by {gap:.0e} relative"
        rows.append(Row(title, "the same fit in memory", memory.run, ours.run, ours.first, note=note))
    return rows


def _files(folder: pathlib.Path) -> list[Row]:
    """Writing and reading a model of 40 MB, and one of many small arrays."""
    rows = []
    table = jr.normal(jr.key(0), (500_000, 20))
    big = pml.sequences.LinearChainCRF.sparse(num_features=500_000, num_labels=20)
    big = jax.tree_util.tree_map(lambda a: table if a.shape == table.shape else a, big)
    small = pml.mixtures.gaussian_mixture(jr.key(0), _data(1000, 4, 3), 8)
    for name, model in (("a CRF with 10,000,000 weights", big), ("a small mixture", small)):

        def peer(model=model):
            (folder / "pickle").write_bytes(pickle.dumps(jax.tree_util.tree_map(np.asarray, model)))
            return jax.tree_util.tree_map(jnp.asarray, pickle.loads((folder / "pickle").read_bytes()))

        def ours(model=model):
            pml.save(folder / "model", model)
            return pml.load(folder / "model")

        theirs, mine = measure(peer, repeats=7), measure(ours, repeats=7)
        size = (folder / "model").stat().st_size
        note = f"{size / 1e6:.1f} MB, flushed to the disk; pickle runs code, and is not flushed"
        rows.append(Row(f"save and load {name}", "pickle", theirs.run, mine.run, mine.first, note=note))
    return rows


def rows(data_dir: pathlib.Path | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return _fits(pathlib.Path(folder)) + _files(pathlib.Path(folder))

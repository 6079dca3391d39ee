"""How we time: compilation and running apart, results awaited, medians of several runs, peers in the same process."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
from threadpoolctl import threadpool_limits


@dataclasses.dataclass(frozen=True)
class Timing:
    first: float
    run: float


def measure(function: Callable[[], Any], repeats: int = 5, blas_threads: int | None = None) -> Timing:
    """Seconds of the first call (compilation included) and the median of the later ones.

    `blas_threads` limits the threads of BLAS libraries meanwhile: programs of XLA that factorize large matrices run
    beside the threads of the library that does it, and both lose.
    """
    with threadpool_limits(blas_threads, user_api="blas"):
        return _measure(function, repeats)


def _measure(function: Callable[[], Any], repeats: int) -> Timing:
    started = time.perf_counter()
    jax.block_until_ready(function())
    first = time.perf_counter() - started
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function())
        runs.append(time.perf_counter() - started)
    return Timing(first, statistics.median(runs))


def per_step(run: Callable[[int], Any], few: int, many: int, repeats: int = 3) -> tuple[float, float]:
    """Seconds per iteration from two run lengths, so that set-up cancels; and the first call of the longer one."""
    short = measure(lambda: run(few), repeats)
    long = measure(lambda: run(many), repeats)
    return (long.run - short.run) / (many - few), long.first


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: the same work by a peer and by this library."""

    name: str
    peer: str
    peer_seconds: float
    our_seconds: float
    our_first_call: float
    target: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.peer_seconds / self.our_seconds


def table(rows: list[Row]) -> str:
    """A Markdown table of the rows."""
    lines = ["| what | peer | peer | ours | ratio | target | first call | note |", "|---|---|---|---|---|---|---|---|"]
    for r in rows:
        target = f"{r.target:g}x" if r.target else ""
        cells = [
            r.name,
            r.peer,
            f"{1e3 * r.peer_seconds:.3g} ms",
            f"{1e3 * r.our_seconds:.3g} ms",
            f"**{r.ratio:.1f}x**",
        ]
        lines.append("| " + " | ".join([*cells, target, f"{r.our_first_call:.2f} s", r.note]) + " |")
    return "\n".join(lines)

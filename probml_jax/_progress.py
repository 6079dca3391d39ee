"""A progress bar when tqdm is installed, a plain line on standard error when it is not."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def reporter(total: int, show: bool = True) -> Iterator[Callable[[int, float], None]]:
    """Yield `report(steps_done, objective)`; one that says nothing unless `show`."""
    if not show:
        yield lambda done, value: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield from _plain(total)
        return
    with tqdm(total=total, desc="fit", unit="step") as bar:

        def report(done: int, value: float) -> None:
            bar.n = min(done, total)
            bar.set_postfix(objective=f"{value:.6g}")

        yield report


def _plain(total: int) -> Iterator[Callable[[int, float], None]]:
    started = time.perf_counter()

    def report(done: int, value: float) -> None:
        elapsed = time.perf_counter() - started
        left = elapsed * max(total - done, 0) / max(done, 1)
        sys.stderr.write(f"\rfit: step {done}/{total}, objective {value:.6g}, at most {left:.0f} s left")
        sys.stderr.flush()

    yield report
    sys.stderr.write("\n")

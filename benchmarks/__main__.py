"""`python -m benchmarks [--data-dir FOLDER] [name ...]`: run comparisons, print tables, save them in results/.

The folder holds data that cannot be shipped: `conll2000/train.txt` and `conll2000/test.txt` for `crf`.
"""

import argparse
import dataclasses
import importlib
import json
import pathlib
import platform

import jax

from benchmarks.timing import table

ALL = (
    "mixtures",
    "conjugate",
    "sequences",
    "crf",
    "factors",
    "kalman",
    "gaussian_processes",
    "classifiers",
    "decision",
    "graphs",
    "long_runs",
)


def main(names: list[str], data_dir: pathlib.Path | None) -> None:
    jax.config.update("jax_enable_x64", True)
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    for name in names or ALL:
        rows = importlib.import_module(f"benchmarks.{name}").rows(data_dir)
        if not rows:
            print(f"\n## {name}: nothing to run (it needs --data-dir and its peers)", flush=True)
            continue
        text = table(rows)
        print(f"\n## {name}\n\n{text}\n", flush=True)
        about = {"jax": jax.__version__, "python": platform.python_version(), "machine": platform.machine()}
        record = {"environment": about, "rows": [dataclasses.asdict(r) | {"ratio": r.ratio} for r in rows]}
        (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        (results / f"{name}.md").write_text(text + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(ALL)}; all when none is given")
    parser.add_argument("--data-dir", type=pathlib.Path)
    given = parser.parse_args()
    main(given.names, given.data_dir)

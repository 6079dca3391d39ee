"""`python -m benchmarks [name ...]`: run comparisons, print the table, save it under benchmarks/results/."""

import dataclasses
import importlib
import json
import pathlib
import platform
import sys

import jax

from benchmarks.timing import table

ALL = ("mixtures", "conjugate", "sequences")


def main(names: list[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    for name in names or ALL:
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        text = table(rows)
        print(f"\n## {name}\n\n{text}\n", flush=True)
        about = {"jax": jax.__version__, "python": platform.python_version(), "machine": platform.machine()}
        record = {"environment": about, "rows": [dataclasses.asdict(r) | {"ratio": r.ratio} for r in rows]}
        (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        (results / f"{name}.md").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

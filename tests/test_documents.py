"""What the README says runs, and what the tour promises appears."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_the_readme_runs_as_its_reader_would_run_it(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 3
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "converged" in done.stdout


def test_the_guided_tour(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "probml_jax", str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("converged") >= 5
    assert "nonfinite" not in done.stdout
    assert len(list(tmp_path.glob("*.png"))) == 6

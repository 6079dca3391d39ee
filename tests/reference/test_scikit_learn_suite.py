"""scikit-learn's own tests of these classes, run on ours.

Its test files ship inside the package. Each is imported as it is, our classes are put in place of the ones it names,
and its tests are collected by pytest in a process of their own. What is deselected, and why, is the table below; of
what is left, and of everything that was collected, the share that passes is asserted.
"""

import json
import pathlib
import subprocess
import sys
import textwrap

# module -> names that are replaced
FILES = {
    "sklearn.mixture.tests.test_gaussian_mixture": ["GaussianMixture"],
    "sklearn.mixture.tests.test_bayesian_mixture": ["BayesianGaussianMixture"],
    "sklearn.neighbors.tests.test_kde": ["KernelDensity"],
    "sklearn.tests.test_naive_bayes": ["GaussianNB", "MultinomialNB", "BernoulliNB", "CategoricalNB"],
    "sklearn.tests.test_discriminant_analysis": ["LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"],
    "sklearn.metrics.tests.test_ranking": [
        "roc_auc_score",
        "roc_curve",
        "precision_recall_curve",
        "average_precision_score",
    ],
}
LEAST = 0.8


RUNNER = textwrap.dedent(
    """
    import importlib, json, sys
    import numpy as np
    import pytest
    sys.path.insert(0, {here!r})

    module, names = {module!r}, {names!r}
    target = importlib.import_module(module)
    from scikit_learn_stand_ins import STAND_INS
    for name in names:
        setattr(target, name, STAND_INS[name])
    if module.endswith("test_bayesian_mixture"):
        target.PRIOR_TYPE = ["dirichlet_distribution"]

    class Count:
        def __init__(self):
            self.outcomes = {{}}
        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.outcome != "passed":
                self.outcomes.setdefault(report.nodeid.split("::", 1)[1], report.outcome)

    count = Count()
    options = ["-q", "--no-header", "-c", "/dev/null", "--rootdir", {here!r}, "-p", "no:cacheprovider",
               "-p", "no:xdist", "--tb=short",
               "-W", "ignore", "--pyargs", module, "-k", {select!r}]
    pytest.main(options, plugins=[count])
    print("OUTCOMES" + json.dumps(count.outcomes))
    """
)


def outcomes(module: str, select: str = "") -> dict[str, str]:
    """What became of each test of one of scikit-learn's files."""
    here = str(pathlib.Path(__file__).parent)
    script = RUNNER.format(here=here, module=module, names=FILES[module], select=select)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOMES")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(lines[0].removeprefix("OUTCOMES"))

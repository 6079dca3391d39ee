"""Posterior marginals of five published networks: figures of pgmpy, stored, and pgmpy itself where it is installed.

`pgmpy_marginals.json.gz` holds, for each network and three patterns of evidence, every variable's posterior by pgmpy's
`VariableElimination` (its field `how` names the version and the calls).
"""

import gzip
import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probml_jax as pml

HERE = pathlib.Path(__file__).parent
STORED = json.loads(gzip.decompress((HERE / "pgmpy_marginals.json.gz").read_bytes()))["figures"]
NETWORKS = sorted({figure["network"] for figure in STORED})


def _path(name):
    return HERE / "networks" / f"{name}.bif.gz"


@pytest.mark.parametrize("name", NETWORKS)
def test_all_marginals_are_pgmpys(name):
    net = pml.graphs.read_bif(_path(name))
    figures = [figure for figure in STORED if figure["network"] == name]
    rows = jnp.stack([net.evidence_row(figure["evidence"]) for figure in figures])
    found = jax.vmap(net.marginals_from_array)(rows)
    states = {variable.name: variable.states for variable in net.variables}
    for i, figure in enumerate(figures):
        assert len(figure["marginals"]) + len(figure["evidence"]) == len(net.variables)
        for variable, want in figure["marginals"].items():
            got = dict(zip(states[variable], np.asarray(found[variable][i]), strict=True))
            np.testing.assert_allclose([got[s] for s in want], list(want.values()), atol=1e-6, err_msg=variable)


@pytest.mark.skipif(importlib.util.find_spec("pgmpy") is None, reason="pgmpy is not installed")
def test_live_marginals_are_pgmpys():
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    net = pml.graphs.read_bif(_path("alarm"))
    peer = VariableElimination(BIFReader(string=gzip.decompress(_path("alarm").read_bytes()).decode()).get_model())
    found = net.marginals({"HR": "LOW"})
    for variable in net.variables:
        if variable.name != "HR":
            query = peer.query([variable.name], evidence={"HR": "LOW"}, show_progress=False)
            order = [query.state_names[variable.name].index(s) for s in variable.states]
            np.testing.assert_allclose(found[variable.name], np.asarray(query.values)[order], atol=1e-6)

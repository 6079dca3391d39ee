"""BIF and UAI files: round trips, what is malformed and on which line."""

import gzip

import jax.numpy as jnp
import numpy as np
import pytest
from graph_enumeration import random_graph, random_network

from probml_jax import graphs
from probml_jax.graphs import bif, uai

RAIN = """// a comment
network weather {
  property "by hand";
}
variable rain {
  type discrete [ 2 ] { no, yes };
}
variable wet { /* two
lines */
  type discrete [ 2 ] { no, "very wet" };
}
probability ( rain ) {
  table 0.8, 0.2;
}
probability ( wet | rain ) {
  (no) 0.9, 0.1;
  (yes) 0.2, 0.8;
}
"""


def _same(a, b):
    assert a.names == b.names
    for name in a.names:
        np.testing.assert_allclose(a.table(name), b.table(name), rtol=1e-14)


def test_bif_is_read_and_written(tmp_path):
    net = bif.parse_bif(RAIN)
    np.testing.assert_allclose(net.table("wet"), [[0.9, 0.1], [0.2, 0.8]])
    assert net.variables[1].states == ("no", "very wet")
    np.testing.assert_allclose(net.marginals({"wet": "very wet"})["rain"][1], 0.16 / 0.24)
    other = random_network(6)
    graphs.write_bif(other, tmp_path / "net.bif")
    _same(graphs.read_bif(tmp_path / "net.bif"), other)
    packed = tmp_path / "net.bif.gz"
    packed.write_bytes(gzip.compress((tmp_path / "net.bif").read_bytes()))
    _same(graphs.read_bif(packed), other)
    whole = RAIN.replace("(no) 0.9, 0.1;", "table 0.9, 0.2, 0.1, 0.8;").replace("(yes) 0.2, 0.8;", "")
    _same(bif.parse_bif(whole), net)
    rest = RAIN.replace("(yes) 0.2, 0.8;", "default 0.2, 0.8;")
    _same(bif.parse_bif(rest), net)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table 0.8, 0.2", "table 0.8, x", "line 13: found 'x' where a probability is wanted"),
        ("table 0.8, 0.2", "table 0.8, 0.1", r"line 13: .*'rain' .* do not sum to one \(the sum is 0.9\)"),
        ("table 0.8, 0.2;", "table 0.8, 0.1, 0.1;", "line 13: the table of 'rain' has 3 entries; wanted 2"),
        ("(yes) 0.2, 0.8;", "", r"line 15: the table of 'wet' has no row for \('yes',\)"),
        ("(yes) 0.2, 0.8;", "(maybe) 0.2, 0.8; default 0.5, 0.5;", "line 17: 'wet' has a row for unknown states"),
        ("wet | rain", "wet | snow", "line 15: probability of the undeclared variable 'snow'"),
        ("[ 2 ] { no, yes }", "[ 3 ] { no, yes }", "line 6: 'rain' announces 3 states and names 2"),
        ("variable wet", "variable rain", "line 8: variable 'rain' is declared twice"),
        ("variable wet", "varable wet", "line 8: found 'varable'"),
        ("probability ( rain )", "probability ( rain ]", "line 12: found ']' where"),
        ("  (yes) 0.2, 0.8;\n}\n", "  (yes) 0.2, 0.8;\n", "the file ends where"),
    ],
)
def test_malformed_bif_names_its_line(old, new, message):
    assert old in RAIN
    with pytest.raises(ValueError, match=message):
        bif.parse_bif(RAIN.replace(old, new))


def test_a_cycle_in_a_file_is_named():
    text = RAIN.replace(
        "probability ( rain ) {\n  table 0.8, 0.2;", "probability ( rain | wet ) {\n  default 0.8, 0.2;"
    )
    with pytest.raises(ValueError, match="the graph has a cycle: "):
        bif.parse_bif(text)


def test_uai_is_read_and_written(tmp_path):
    net, path = random_network(6), tmp_path / "model.uai"
    graphs.write_uai(net, path)
    back = graphs.read_uai(path)
    assert isinstance(back, graphs.BayesNet)
    np.testing.assert_allclose(back.marginals({"x0": 1})["x5"], net.marginals({"v0": 1})["v5"], rtol=1e-10)
    field = random_graph(kind=graphs.MarkovField)
    graphs.write_uai(field, path)
    np.testing.assert_allclose(graphs.read_uai(path).log_partition(), field.log_partition(), rtol=1e-10)
    evidence = tmp_path / "model.uai.evid"
    graphs.write_uai_evidence({"b": 2, "g": 0}, field, evidence)
    assert evidence.read_text() == "2 1 2 6 0\n"
    assert graphs.read_uai_evidence(evidence, field) == {"b": 2, "g": 0}


GOOD = "MARKOV\n2\n2 3\n1\n2 0 1\n\n6\n1 2 3\n4 5 6\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("MARKOV", "GIBBS"), "line 1: found 'GIBBS'"),
        (GOOD.replace("2 0 1", "2 0 7"), "line 5: scope .* names a variable beyond 1"),
        (GOOD.replace("\n6\n", "\n5\n"), r"line 7: a table of shape \(2, 3\) announces 5 entries"),
        (GOOD.replace("4 5 6", "4 five 6"), "line 9: found 'five' where a table entry is wanted"),
        (GOOD.replace("4 5 6", "4 5"), "the file ends where a table entry is wanted"),
        (GOOD.replace("4 5 6", "4 5 -6"), "line 8: a table has negative"),
        (GOOD + "7\n", "line 10: found '7' after the last table"),
        (GOOD.replace("MARKOV", "BAYES"), "exactly one table per variable"),
    ],
)
def test_malformed_uai_names_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        uai.parse_uai(text)


def test_evidence_out_of_range_names_its_line(tmp_path):
    field = uai.parse_uai(GOOD)
    np.testing.assert_allclose(jnp.exp(field.log_partition()), 21)
    path = tmp_path / "bad.evid"
    path.write_text("1\n0 2\n")
    with pytest.raises(ValueError, match=r"bad\.evid, line 2: variable 0 has no state 2"):
        graphs.read_uai_evidence(path, field)

"""`kvbench inspect` on the shipped dump: usage inspect_command_test.py PROGRAM DUMP."""

import json
import subprocess
import sys
from itertools import pairwise

program, dump = sys.argv[1:3]

LAYER_NAMES = {"query_heads", "kv_heads", "tokens", "query_rows", "d", "dv", "dtype"}


def run(*arguments):
    return subprocess.run([program, "inspect", *arguments], capture_output=True, text=True)


def check_names(value, in_layers=False):
    """The names of a layer's layout stand for nothing else in the document."""
    if isinstance(value, dict):
        found = LAYER_NAMES & value.keys()
        assert found == (LAYER_NAMES if in_layers else set()), found
        for name, member in value.items():
            if name == "layers":
                for layer in member:
                    check_names(layer, in_layers=True)
            else:
                check_names(member)
    elif isinstance(value, list):
        for member in value:
            check_names(member)


def reject(constant):
    raise AssertionError(f"{constant} is not JSON")


def check_document():
    done = run(dump, "--json")
    assert done.returncode == 0 and done.stderr == "", done
    document = json.loads(done.stdout, parse_constant=reject)
    assert document["kind"] == "kvbench.inspection" and document["n_layers"] == 30
    check_names(document)
    (sequence,) = document["sequences"]
    layers = {layer["layer"]: layer for layer in sequence["layers"]}
    assert list(layers) == [0, 1, 15]
    for layer in layers.values():
        assert (layer["query_heads"], layer["kv_heads"]) == (9, 3)
        assert (layer["tokens"], layer["query_rows"]) == (2048, 2048)
        assert (layer["d"], layer["dv"], layer["dtype"]) == (64, 64, "float16")
        assert [head["kv_head"] for head in layer["heads"]] == [0, 1, 2]
        for head in layer["heads"]:
            for name in ("keys", "values"):
                radii = head[name]["covering_radius"]
                assert all(a[0] < b[0] and a[1] >= b[1] for a, b in pairwise(radii))
                assert len(set(head[name]["centers"])) == 64 and head[name]["centers"][0] == 0
            heads = head["attention"]["per_query_head"]
            first = 3 * head["kv_head"]
            assert [h["query_head"] for h in heads] == [first, first + 1, first + 2]
            mean = sum(h["entropy_nats"] for h in heads) / 3
            assert abs(mean - head["attention"]["entropy_nats"]) < 1e-12
            for entry in head["attention"]["top_mass"]:
                assert 0 <= entry["accumulated"] <= entry["per_query"] + 1e-12
    # Clusters and delta r of an independent float64 program: delta_quantile 0.05, KV head 0.
    for index, clusters, delta_r in ((0, 462, 10), (1, 278, 38), (15, 107, 35)):
        head = layers[index]["heads"][0]
        (point,) = [p for p in head["keys"]["clustering"] if p["delta_quantile"] == 0.05]
        assert point["clusters"] == clusters
        assert round(point["delta"] * head["r_attention_rows"]) == delta_r
        assert point["delta_r"] == point["delta"] * head["r"]


def check_selection():
    done = run(dump, "--layers", "15,0", "--kv-heads", "2", "--rows", "16", "--json",
               "--centers", "3", "--clustering-tokens", "100", "--delta-quantiles", "0.5")
    (sequence,) = json.loads(done.stdout)["sequences"]
    assert [layer["layer"] for layer in sequence["layers"]] == [0, 15]
    for layer in sequence["layers"]:
        (head,) = layer["heads"]
        assert head["kv_head"] == 2 and head["clustering_tokens"] == 100
        assert (head["attention"]["first_row"], head["attention"]["rows"]) == (2032, 16)
        assert [k for k, _ in head["keys"]["covering_radius"]] == [1, 2, 3]
        (point,) = head["keys"]["clustering"]
        assert point["growth"][-1] == [100, point["clusters"]]


def check_table():
    done = run(dump, "--layers", "1", "--kv-heads", "0")
    assert done.returncode == 0 and done.stderr == "", done
    for wanted in ("SmolLM2", "float16", "38.74", "278", "srank", "entropy"):
        assert wanted in done.stdout, wanted


def check_faults():
    done = run(dump, "--layers", "1,2,3")
    assert done.returncode == 2 and done.stdout == ""
    assert "--layers 2, 3: no such layer; the dump has 0, 1, 15" in done.stderr
    for arguments in ((dump, "--kv-heads", "3"), (dump, "--sequences", "none"), (dump, "--rows", "0"),
                      (dump, "--delta-quantiles", "1.5"), (), (dump + ".missing",), (__file__,)):
        done = run(*arguments)
        assert done.returncode == 2 and done.stdout == "" and done.stderr != "", (arguments, done)


check_document()
check_selection()
check_table()
check_faults()

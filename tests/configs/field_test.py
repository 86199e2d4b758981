"""configs/field_published.json and field_equalised.json: what is made from the other sweeps. KVBENCH_UPDATE_FIELD=1
writes both.

Published: a method's entry is the first one of its paper's sweep, unless CHOSEN names another one, with every parameter
as it is there except the one that decides the memory. Equalised: the entries of field.json."""

import json
import os
import re
import unittest

from sweeps import CONFIGS

MEMORIES = {"budget": {"memory": [0.1, 0.2, 0.35]}}
# Fractions of the prompt that come to these memories where memory is a mean over heads or layers, or of whole chunks.
FRACTIONS = {"budget": [0.071, 0.1742, 0.329]}
# The parameter that decides the memory, for methods whose budget cannot be solved.
SIZES = {
    "pyramidkv": FRACTIONS, "adakv": FRACTIONS, "cake": FRACTIONS, "chunkkv": FRACTIONS, "wildcat": FRACTIONS,
    "thinformer": {"g": [2, 3, 4]}, "performer": {"features": [128, 512, 1024]},
    "balancekv_prefill": {"T": [2, 3, 4, 5]}, "softmax_balance": {"T": [2, 3, 4, 5]},
    # With the released references 0.35 takes more time than all other methods.
    "attention_matching": {"budget": {"memory": [0.1, 0.2]}},
    "balancekv": {"t": [16, 64, 128], "T": 5},
    "subgen": {"delta_quantile": [0.03, 0.1, 0.25, 0.8], "t": 1, "s": 128},
}
# Labels of entries where the first one keeps every token, cannot hold these memories, or changes nothing in 64 rows.
CHOSEN = {"h2o": "h2o", "rkv": "rkv, once", "lagkv": "lagkv"}
# More settings that a release has; by the name of the row.
MORE = {"streaming_llm, original positions": ("papers/streaming_llm", "original positions")}
# Methods without a sweep in configs/papers: that of their figure, and its label. The others have no released code and
# get their defaults.
FIGURES = {"balancekv_prefill": ("figures/balancekv_longbench", "balancekv_prefill"), "window": None,
           "key_attention": None, "keyformer": None, "kcenter": None, "softmax_balance": None, "balancekv": None,
           "subgen": None}
# The release's own pairs of values are scanned by its scripts; the paper's Table 1 has these.
FIRST = {"block": 128, "temperature": 1}
HEADS = {
    "published": """// Methods that evict, merge, fit or draw, each as its released code runs, at equal bytes; made from papers/ and
//   figures/ by tests/configs/field_test.py.
// A replay gives: everything; in no paper.
// Settings: the published ones, except that budgets hold 0.1, 0.2 and 0.35 of the exact cache. `uniform` is the
//   baseline of field.json, with 32 sinks and 32 recent tokens. Methods without released code have their defaults.
""",
    "equalised": """// Methods that evict, merge, fit or draw, with 32 sinks and 32 recent tokens where they take them, at equal bytes; made
//   from field.json by tests/configs/field_test.py.
// A replay gives: everything; in no paper.
// Settings: those of field.json, except that `criticalkv` has the norms of W_O v, which dumps of all layers have, and
//   that `attention_matching` has the released references as well as this project's.
"""}
BODY = """{
  "schema_version": 1,
  "name": "field_NAME",
  "dumps": ["../data/smollm2-constitution.h5"],
  "replay": { "prompt_tokens": 0.96875 },
  "evaluate": { "rows": "all" },
  "seeds": { "first": 0, "count": 2 },
  "algorithms": [
"""
READING = {"oracle_topk", "quest", "sparq", "loki", "magicpig", "vattention", "hyperattention", "kdeformer"}


def sweep(name):
    text = (CONFIGS / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))["algorithms"]


def entry(name, label=None):
    """Parameters of an entry of a sweep: the first one, or that of a label."""
    found = next(each for each in sweep(name) if label in (None, each.get("label", each["algorithm"])))
    first = lambda key, value: FIRST.get(key, value[0]) if isinstance(value, list) else value  # noqa: E731
    return {key: value if key == "budget" else first(key, value) for key, value in found.get("params", {}).items()}


def evicting():
    """The entries of field.json that hold fewer tokens than the exact cache, and their baseline."""
    return [each for each in sweep("field")
            if "storage" not in each and each["algorithm"] not in READING | {"exact"}]


def equalised():
    for each in evicting():
        params = each["params"] | SIZES.get(each["algorithm"], {})
        if each["algorithm"] == "criticalkv":
            params["norm"] = "wo_l1"
        if each["algorithm"] == "attention_matching":
            yield each | {"label": "attention_matching, own references", "params": params}
            params = params | {"reference": "prompt", "masked": False}
        yield each | {"params": params}


def published():
    files = {"kf_merge": "papers/kvcache_factory_merge", "merge_cosine": "papers/merging_press"} | FIGURES
    for each in evicting():
        name = each["algorithm"]
        if name == "uniform":
            yield each
            continue
        source = files.get(name, (f"papers/{name}", CHOSEN.get(name)))
        params = entry(*source) if isinstance(source, tuple) else entry(source) if source else {}
        if name == "criticalkv":
            params["norm"] = "wo_l1"  # as released; the shipped dump lacks it
        size = SIZES.get(name, MEMORIES)
        yield {"algorithm": name, "params": size | {key: value for key, value in params.items() if key not in size}}
        for row, (file, label) in MORE.items():
            if row.split(",")[0] == name:
                yield {"algorithm": name, "label": row, "params": entry(file, label) | size}


def made(mode):
    lines = (f"    {json.dumps(each)}" for each in {"published": published, "equalised": equalised}[mode]())
    return HEADS[mode] + BODY.replace("NAME", mode) + ",\n".join(lines) + "\n  ]\n}\n"


class Field(unittest.TestCase):
    def test_the_two_modes_are_made_from_the_other_sweeps(self):
        for mode in HEADS:
            path = CONFIGS / f"field_{mode}.json"
            if os.environ.get("KVBENCH_UPDATE_FIELD") == "1":
                path.write_text(made(mode), encoding="utf-8")
            self.assertEqual(path.read_text(encoding="utf-8"), made(mode), mode)


if __name__ == "__main__":
    unittest.main()

"""A results.json in the shape that kvbench writes, with made-up numbers that follow a known law."""

import json
import math


def cell(algorithm, params, error, fraction, layer=0, kv_head=0, seed=None, status="ok", **more):
    out = {
        "id": f"{algorithm}{json.dumps(params)}{layer}{kv_head}{seed}",
        "status": status,
        "key": {
            "dump": "d", "sequence": "0", "layer": layer, "kv_head": kv_head, "tokens": 2048,
            "prompt_tokens": 1792, "rows": "all", "algorithm": algorithm, "params": params,
            "seed": seed, "element_bytes": 2, "device": "cpu",
        },
        "label": algorithm,
    }
    if status == "ok":
        out["derived"] = {}
        out["errors"] = {"relative_l2": {"mean": error, "max": 3 * error}, "relative_frobenius_error": error,
                         "kl_divergence": None}
        out["memory"] = {"fraction": fraction, "exact_bytes": 4096, "peak_bytes": 4096 * fraction,
                         "tokens": int(2048 * fraction)}
        out["clusters"] = None
        out["timing"] = {"seconds": 0.1}
    out.update(more)
    return out


def traffic(fraction, exact=1000.0):
    """The traffic of a row, as a part of `exact` bytes."""
    return {"bytes_read": {"mean": fraction * exact, "max": fraction * exact}, "fraction": fraction}


def mixed():
    """A model of two layers with a sliding window and a global one of eight times their bytes. H2O is
    exact in the windows, where quest is skipped; in layer 2 quest has the smaller error."""
    cells = []
    for layer in (0, 1, 2):
        for head in (0, 1):
            unit = {"layer": layer, "kv_head": head}
            if layer < 2:
                cells.append(cell("h2o", {"budget": 32}, 0.0, 1.0, **unit))
                cells.append(cell("quest", {"budget": 32}, 0, 0, status="skipped", reason="a window", **unit))
            else:
                cells.append(cell("h2o", {"budget": 32}, 2.5 + 0.1 * head, 0.125, **unit))
                cells.append(cell("quest", {"budget": 32}, 2.1 + 0.1 * head, 1.0, **unit))
    for each in cells:
        if each["status"] == "ok":
            fraction = each["memory"]["fraction"]
            exact = 8192 if each["key"]["layer"] == 2 else 1024
            each["memory"].update(exact_bytes=exact, peak_bytes=fraction * exact)
            each["traffic"] = traffic(fraction, exact)
    return cells


def document(cells):
    return {"schema_version": "1.0.0", "kind": "kvbench.results", "name": "made",
            "status": "complete", "config": {}, "provenance": [],
            "plan": {"cells": len(cells), **{
                word: sum(each["status"] == word for each in cells)
                for word in ("ok", "failed", "skipped")}}, "dumps": [],
            "cells": cells, "groups": [], "summary": []}


def sweep():
    """Ten algorithms over three layers, two heads, three seeds: errors fall with memory."""
    cells = []
    for layer in (0, 1, 15):
        for head in (0, 1):
            unit = {"layer": layer, "kv_head": head}
            scale = 1.0 + 0.3 * layer / 15 + 0.1 * head
            cells.append(cell("exact", {}, 5e-17, 1.0, **unit))
            for place, name in enumerate(
                ("window", "dilated_window", "streaming_llm", "h2o", "key_attention", "kcenter")):
                for budget in (128, 256, 512, 1024):
                    error = scale * (0.9 - 0.1 * place) * math.sqrt(128 / budget)
                    held = 1.0 if name == "dilated_window" else (budget + 256) / 2048
                    cells.append(cell(name, {"budget": budget}, error, held, **unit))
            for budget in (128, 256, 512, 1024):
                cells.append(cell("oracle_topk", {"budget": budget}, 20 * scale / budget, 1.0, **unit))
            for seed in (0, 1, 2):
                for level in (1, 2, 3, 4):
                    error = 0.06 * scale * 2 ** (level / 2) * (1 + 0.1 * (seed - 1))
                    cells.append(cell("uniform", {"T": level}, error, 0.25 + 0.75 / 2 ** level,
                                      seed=seed, **unit))
                for quantile in (0.05, 0.2):
                    for t in (4, 16):
                        for s in (64, 256, 512):
                            error = scale * (8 / math.sqrt(s) + quantile) * (1 + 0.3 * (seed - 1))
                            cells.append(cell(
                                "subgen", {"delta_quantile": quantile, "t": t, "s": s}, error,
                                (s + 300 * t * (0.3 - quantile)) / 2048, seed=seed, **unit))
    cells.append(cell("h2o", {"budget": 4}, 0, 0, status="skipped", reason="budget < recent"))
    cells.append(cell("subgen", {"t": 1}, 0, 0, status="failed", reason="overflow"))
    return document(cells)

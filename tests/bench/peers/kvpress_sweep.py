"""A whole sweep with kvpress's presses and torch, on the CPU, as a user of kvpress would write it for
given tensors: `press.compress` of every layer's prompt for each press and budget, all KV heads at
once, then torch's fused attention of the decoded rows over what is kept; single precision.

    kvpress_sweep.py DUMP CELLS.json OUT.json [--double]     (PYTHONPATH: data)

The cells' algorithms are those of PRESSES. Prints the seconds from reading the dump to writing
OUT.json."""

import dataclasses
import os
import time

import h5py
import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import sweep_cells
from presses.kvpress_module import read_layer
from presses.kvpress_presses import load_kvpress, press_of
from sweep_cells import operator_norms

PRESSES = {
    "snapkv": lambda p: f"SnapKVPress(window_size={p['window']}, kernel_size={p['kernel']})",
    "knorm": lambda p: "KnormPress()",
    "keydiff": lambda p: "KeyDiffPress()",
    "expected_attention": lambda p: "ExpectedAttentionPress()",
    "curdkv": lambda p: "CURPress()",
}


class Rows:
    """The decoded rows of a layer: queries [1, Hq, R, d], later keys and values [1, Hkv, R, d]."""

    def __init__(self, group, tokens, layer, real):
        prompt, scale = layer.prompt, layer.terms.scale
        self.q, self.k, self.v = (torch.from_numpy(group[name][:, prompt:tokens].astype(real))[None]
                                  for name in "qkv")
        k, v = torch.cat([layer.k, self.k], dim=2), torch.cat([layer.v, self.v], dim=2)
        self.scale = scale
        self.group = self.q.shape[1] // k.shape[1]
        self.exact = self.attention(k[:, :, :prompt], v[:, :, :prompt])
        self.length = self.exact.norm(dim=-1)
        x = scale * self.q @ k.repeat_interleave(self.group, 1).mT
        x[..., prompt:].masked_fill_(~self.visible(), -torch.inf)
        norms = np.stack([operator_norms(one.numpy(), prompt) for one in v[0]])
        self.unit = x.softmax(-1).norm(dim=-1) * torch.from_numpy(norms.astype(real)).repeat_interleave(
            self.group, 0)[None]

    def visible(self):
        return torch.ones(self.q.shape[2], self.q.shape[2], dtype=torch.bool).tril()

    def attention(self, keys, values):
        """Over kept rows [1, Hkv, m, d] of the prompt and the decoded tokens."""
        mask = torch.cat([torch.ones(self.q.shape[2], keys.shape[2], dtype=torch.bool),
                          self.visible()], dim=1)
        keys, values = torch.cat([keys, self.k], dim=2), torch.cat([values, self.v], dim=2)
        return scaled_dot_product_attention(
            self.q, keys.repeat_interleave(self.group, 1), values.repeat_interleave(self.group, 1),
            attn_mask=mask, scale=self.scale)

    def records(self, keys, values):
        """The records of every KV head."""
        wrong = (self.attention(keys, values) - self.exact).norm(dim=-1)
        found = {"relative_l2": wrong / self.length, "epsilon_spectral": wrong / self.unit}
        of_head = {name: each[0].unflatten(0, (-1, self.group)).mean(dim=(1, 2))
                   for name, each in found.items()}
        return [{name: float(each[head]) for name, each in of_head.items()}
                for head in range(keys.shape[1])]


def single(layer):
    return dataclasses.replace(layer, q=layer.q.float(), k=layer.k.float(), v=layer.v.float())


def run_layer(group, heads, real):
    """{id: record} of a layer's cells {KV head: [cell]}; a setting is computed for all heads at once."""
    prompt = heads[0][0]["key"]["prompt_tokens"]
    layer = read_layer(group, prompt)
    if real == np.float32:
        layer = single(layer)
    rows = Rows(group, heads[0][0]["key"]["tokens"], layer, real)
    hidden = layer.hidden_states()
    keywords, attentions = layer.keywords(hidden), {}
    named = [{(cell["key"]["algorithm"], str(cell["key"]["params"])): cell["id"] for cell in cells}
             for _, cells in sorted(heads.items())]
    found = {}
    for cell in heads[0]:
        key = cell["key"]
        press = press_of(PRESSES[key["algorithm"]](key["params"]))
        press.compression_ratio = 1 - (key["params"]["budget"] + 0.5) / prompt
        window = key["params"]["window"] if key["algorithm"] == "snapkv" else 0
        if window not in attentions:
            attentions[window] = layer.attentions(window) if window else None
        kept = press.compress(layer.module(), hidden, layer.k, layer.v, attentions[window],
                              keywords)
        for head, record in enumerate(rows.records(*kept)):
            found[named[head][key["algorithm"], str(key["params"])]] = record
    return found


def main():
    options = sweep_cells.arguments(__doc__.split("\n", maxsplit=1)[0]).parse_args()
    load_kvpress()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    layers = sweep_cells.by_layer(options.cells)
    real = np.float64 if options.double else np.float32
    start = time.perf_counter()
    records = {}
    with torch.no_grad(), h5py.File(options.dump) as dump:
        for place, heads in layers.items():
            records |= run_layer(sweep_cells.layer_group(dump, *place), heads, real)
    sweep_cells.write(options.out, records)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()

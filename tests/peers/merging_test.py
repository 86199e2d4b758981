"""The values that kvpress's MergingPress and CAMPress leave of the shipped dump, compared with
those of merge_cosine and cam. MergingPress computes in float32 whatever it is given; CAMPress in
the precision of its input."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from unittest import mock

import h5py
import numpy as np
import torch
from compared import KV_HEADS, LAYERS, SEQUENCE, Folder, digits, tensors
from presses.kvpress_presses import load_kvpress

PROMPT = 700
TOKENS = 704


class Merging(Folder):
    def kept(self, algorithm: str, params: dict, layer: int) -> list[dict[int, np.ndarray]]:
        """Values of the prompt's tokens, by KV head, when the first decoded row is answered."""
        self.run_sweep([{"algorithm": algorithm, "label": algorithm, "params": params,
                         "where": {"layers": [layer]}}], PROMPT, select={"tokens": TOKENS})
        path, = (self.folder / "results/caches").glob("*.h5")
        heads = []
        with h5py.File(path) as file:
            for head in range(KV_HEADS):
                rows = file[f"sequences/{SEQUENCE}/layers/{layer}/heads/{head}"]
                token = rows["token"][:]
                begin = rows["begin"][:] if "begin" in rows else np.full(len(token), PROMPT)
                values = rows["value"][:] if "value" in rows else tensors(layer, head)[3][token]
                heads.append({int(t): value for t, b, value in zip(token, begin, values, strict=True)
                              if b <= PROMPT and t < PROMPT})
        return heads

    def test_merging_press(self) -> None:
        """Five digits of float32's seven, of what merging changed; tokens are ours."""
        for layer in LAYERS:
            ours = self.kept("merge_cosine", {"budget": 200}, layer)
            k, v = (torch.tensor(np.stack([tensors(layer, head)[which][:PROMPT]
                                           for head in range(KV_HEADS)]))[None] for which in (2, 3))
            tokens = np.array([[t for t in sorted(head) if t < PROMPT] for head in ours])
            self.assertEqual(tokens.shape, (KV_HEADS, 200))
            press = load_kvpress().MergingPress(load_kvpress().SnapKVPress(compression_ratio=0.5))
            _, merged = press.merge(k, v, torch.tensor(tokens)[None])
            for head in range(KV_HEADS):
                theirs = merged[0, head].numpy()[tokens[head]]
                mine = np.array([ours[head][t] for t in tokens[head]])
                plain = v[0, head].numpy()[tokens[head]]
                changed = np.linalg.norm(mine - plain, axis=1)
                self.assertGreater((changed > 0).sum(), 20)
                apart = np.linalg.norm(mine - theirs, axis=1)
                self.assertLess((apart / np.linalg.norm(plain, axis=1)).max(), 1e-5)
                self.assertGreater((changed / np.linalg.norm(plain, axis=1)).max(), 1e-2)

    def test_cam_press(self) -> None:
        """With its Bernoulli mask replaced by its mean, one token at a time: `draw: expected`."""
        budget, sinks, merge = 64, 4, 16
        for layer in LAYERS:
            ours = self.kept("cam", {"budget": budget, "sinks": sinks, "merge": merge,
                                     "draw": "expected"}, layer)
            press = load_kvpress().CAMPress(
                base_press=load_kvpress().StreamingLLMPress(n_sink=sinks), compression_interval=1,
                target_size=budget, merge_budget=merge)
            theirs, token = cam_values(press, layer)
            for head in range(KV_HEADS):
                self.assertEqual(sorted(ours[head]), token.tolist())
                mine = np.array([ours[head][t] for t in token.tolist()])
                plain = tensors(layer, head)[3][token]
                scale = np.abs(plain).max()
                self.assertGreater(digits(mine + 100 * scale, theirs[head] + 100 * scale), 14)
                self.assertGreater(np.abs(mine - plain).max(), 1e-3 * scale)


def cam_values(press, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """[KV heads, budget, d] and their tokens, after the prompt's last row."""
    scale = tensors(layer, 0)[0]
    q, k, v = (np.stack([tensors(layer, head)[which] for head in range(KV_HEADS)])
               for which in (1, 2, 3))
    module = SimpleNamespace(layer_idx=layer)
    press.layer_step_counts[layer] = 1
    tokens = np.zeros(0, int)
    values, scores = np.zeros((KV_HEADS, 0, v.shape[2])), np.zeros((KV_HEADS, 0))
    for row in range(PROMPT):
        tokens = np.append(tokens, row)
        values = np.concatenate([values, v[:, row:row + 1]], axis=1)
        x = scale * np.einsum("hgd,hjd->hgj", q[:, :, row], k[:, tokens])
        a = np.exp(x - x.max(axis=-1, keepdims=True))
        a /= a.sum(axis=-1, keepdims=True)
        scores = np.concatenate([scores, np.zeros((KV_HEADS, 1))], axis=1) + a.mean(axis=1)
        if len(tokens) <= press.target_size:
            continue
        press._running_attn_sum[layer] = torch.tensor(scores)[None]
        named = torch.tensor(np.broadcast_to(tokens[:, None], values.shape).copy())[None]
        with mock.patch.object(torch, "bernoulli", lambda probability: probability):
            kept, merged = press.compress(module, None, named.double(), torch.tensor(values)[None],
                                          torch.tensor(scores)[None], {})
        tokens = kept[0, 0, :, 0].long().numpy()
        values, scores = merged[0].numpy(), press._running_attn_sum[layer][0].numpy()
    return values, tokens


if __name__ == "__main__":
    unittest.main()

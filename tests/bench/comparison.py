"""The subjects of comparison: tasks, peers, and the bars that kvbench set itself for streams of
8192 tokens."""

from dataclasses import dataclass

BAR_TOKENS = 8192
FURTHER_SEEDS = 9  # seeds of subgen_many, and of every seeds_ task
SEED_BAR = 0.05    # a further seed, of a first cell


@dataclass
class Task:
    title: str
    run: str                  # kvbench's task
    peers: dict               # name -> bar on the ratio, or None, also where it asks for less than
                              # the floor
    floor_bar: float = None   # times above the floor at most
    threads: int = 0          # 0: all
    less: str = ""            # kvbench's time is (run - less) / share
    share: int = 1


FUSED, BLOCKS = "torch fused, double", "numpy, row blocks"
TASKS = {
    "exact": Task("exact attention, every row", "exact", {FUSED: 1.5, BLOCKS: 3.5}, 1.25),
    "exact_wide": Task("the same, d = 256", "exact_wide", {FUSED: 1.5, BLOCKS: None}, 1.25),
    "exact_last": Task("exact attention, last 256 rows", "exact_last",
                       {FUSED: 1.5, "numpy": None}, 1.5),
    "value_norms": Task("||V_i||_op of every row", "value_norms", {"numpy": None}),
    "value_norms_last": Task("||V_i||_op of the last 256 rows", "value_norms_last",
                             {"numpy": None}),
    "clustering": Task("SubGen's clustering alone", "clustering",
                       {"numpy, token-wise": None}, 2.0, threads=1),
    "subgen_first": Task("SubGen s 256, t 8: first cell", "subgen_first",
                         {"numpy, token-wise": 20.0}, threads=1),
    "subgen_further": Task("SubGen s 256, t 8: one more seed", "subgen_many",
                           {"numpy, all again": 130.0, "numpy, clusters kept": None}, threads=1,
                           less="subgen_first", share=FURTHER_SEEDS),
    "walk": Task("BalanceKV, one halving in blocks of 256", "walk",
                 {"torch, the authors' form": 6.0}, 2.0, threads=1),
    "h2o_first": Task("h2o as a stream, k 512: first cell", "h2o_first",
                      {"numpy, token-wise": 9.0}),
    "h2o_further": Task("h2o as a stream: one more budget", "h2o_two",
                        {"numpy, token-wise": None}, less="h2o_first"),
    "scores": Task("prompt score sums: h2o, key_attention", "scores",
                   {"torch softmax, float": 5.0, "torch row blocks, float": None}, 1.5),
    "scores_noisy": Task("prompt score sums: keyformer", "scores_noisy",
                         {"torch softmax, float": 5.0, "torch row blocks, float": None}, 1.5),
    "kcenter": Task("k-center, 512 centres", "kcenter", {"numpy": None}, 1.5),
}
# Tasks whose results must agree, to this relative error. Values that begin with ~ depend on draws.
TOLERANCE = {"exact": 1e-9, "exact_wide": 1e-9, "exact_last": 1e-9, "value_norms": 1e-9,
             "value_norms_last": 1e-9, "clustering": 0.0, "subgen_first": 0.0,
             "subgen_further": 0.0, "walk": 0.0, "h2o_first": 1e-6, "scores": 1e-3,
             "scores_noisy": 1e-3, "kcenter": 1e-6}


def disagreement(task, ours, theirs):
    """The first value that both give and that differs, as text; none: ''."""
    for name in sorted(set(ours) & set(theirs)):
        allowed = TOLERANCE.get(task)
        if name.startswith("~") or allowed is None:
            continue
        if abs(ours[name] - theirs[name]) > allowed * abs(theirs[name]):
            return f"{name} is {ours[name]:.12g}, the peer's {theirs[name]:.12g}"
    return ""

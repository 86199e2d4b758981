"""Which transformers the exporter fits: an incompatible version is refused with an explanation,
and only a few files depend on its internals."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

import torch
import transformers

from export import attention_capture
from export import inner_attention
from export import transformers_version
from format.dump_file import Fault
from exported import SOURCE, Folder

DATA = SOURCE / "data"
# Names that a program may use of transformers anywhere: its documented front doors.
PUBLIC = {"AutoConfig", "AutoModelForCausalLM", "AutoTokenizer", "PretrainedConfig"}
# Names of the insides: parts of modules, entries of configurations, arguments of attention.
INSIDE = ("layer_idx", "o_proj", "c_proj", "out_proj", "kv_a_layernorm", "kv_b_proj", "kv_lora_rank",
          "qk_nope_head_dim", "num_key_value_groups", "inv_freq_", "named_buffers",
          "rope_parameters", "layer_types", "_is_stateful", "attention_chunk_size",
          "max_position_embeddings", "eager_attention_forward", "DynamicCache",
          "masking_utils", "AttentionInterface.register", "query_key_value", "Wqkv")


class Fits(Folder):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(attention_capture.require_fit.cache_clear)
        attention_capture.require_fit.cache_clear()

    def refused(self, *words: str) -> None:
        with self.assertRaises(Fault) as raised:
            attention_capture.require_fit()
        said = str(raised.exception)
        for word in (f"transformers {transformers.__version__} does not fit", "5.23.0 and 5.24.0",
                     "pip install transformers==", *words):
            self.assertIn(word, said)

    def test_this_version_fits_and_is_one_that_is_named(self):
        state = torch.get_rng_state()
        attention_capture.require_fit()
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertIn(transformers.__version__, transformers_version.TESTED)
        pinned = re.search(r'"transformers==(\S+)"', (DATA.parent / "pyproject.toml").read_text())
        self.assertIn(pinned.group(1), transformers_version.TESTED)

    def test_a_version_whose_attention_is_not_heard_is_refused(self):
        """As one that asks another registry would do."""
        own = attention_capture.AttentionInterface.get_interface

        def another(registry, name, default):
            return default if name == attention_capture.NAME else own(registry, name, default)

        with mock.patch.object(attention_capture.AttentionInterface, "get_interface", another):
            self.refused("0 calls were recorded, expected 4")
            self.assert_refused(self.export(self.model("llama")), "does not fit this exporter")

    def test_a_version_that_hands_over_other_arguments_is_refused(self):
        own = attention_capture.attend

        def renamed(module, query, key, value, mask, dropout=0.0, scale=None, **more):
            more.pop("scaling")
            return own(module, query, key, value, mask, dropout, scale, **more)

        with mock.patch.dict(attention_capture.AttentionInterface._global_mapping,
                             {attention_capture.NAME: renamed}):
            self.refused("scale is None")

    def test_a_version_with_other_masks_is_refused(self):
        def none_hidden(*given, **named):
            return torch.zeros_like(attention_capture.eager_mask(*given, **named))

        with mock.patch.dict(attention_capture.AttentionMaskInterface._global_mapping,
                             {attention_capture.NAME: none_hidden}):
            self.refused("its mask")

    def test_a_version_whose_answers_are_not_its_attention_s_is_refused(self):
        module = sys.modules[transformers.LlamaForCausalLM.__module__]
        own = module.eager_attention_forward

        def sharper(attention, query, key, value, mask, scaling, **more):
            return own(attention, 1.1 * query, key, value, mask, scaling=scaling, **more)

        with mock.patch.object(module, "eager_attention_forward", sharper):
            self.refused("layer 0 answers otherwise")

    def test_a_version_that_renames_the_cache_of_mpt_is_refused(self):
        parts = dataclasses.replace(inner_attention.INNER["MptAttention"], cache=("a", "b"))
        with mock.patch.dict(inner_attention.INNER, {"MptAttention": parts}):
            self.assert_refused(self.export(self.model("mpt")), "does not fit this exporter",
                                "MptAttention is called without a or b")

    def test_whatever_else_goes_wrong_is_refused_with_the_version(self):
        def gone(*_, **__):
            raise AttributeError("a cache has no layers any more")

        with mock.patch.object(attention_capture, "held_by", gone):
            self.refused("a trial ended with AttributeError: a cache has no layers any more")

    def test_a_made_up_version_without_the_interface_is_refused_before_any_work(self):
        """A stand-in package of version 3.0 that has none of it."""
        package = self.folder / "stand-in/transformers"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            '__version__ = "3.0"\nclass AutoConfig: pass\nclass AutoTokenizer: pass\n'
            "class AutoModelForCausalLM: pass\nclass PretrainedConfig: pass\n")
        done = subprocess.run(
            [sys.executable, DATA / "export_transformers.py", self.model("llama"), "--token-ids",
             self.made / "text.npy", "--out", self.folder / "dump.h5"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{package.parent}:{DATA}"})
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in ("transformers 3.0 does not fit this exporter", "AttentionInterface",
                     "tested with 5.23.0 and 5.24.0", "pip install transformers==5.23.0"):
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)


class OnePlace(unittest.TestCase):
    def programs(self) -> dict[str, str]:
        """Those that export or decode; kvpress_*.py know kvpress's models."""
        return {path.name: path.read_text() for path in DATA.rglob("*.py")
                if not path.name.startswith("kvpress")}

    def found(self, programs: dict[str, str]) -> list[str]:
        wrong = []
        for name, text in programs.items():
            if name in ("attention_capture.py", "inner_attention.py", "known_arguments.py",
                        "model_call.py", "whole_rotation.py"):
                continue
            imported = re.findall(r"^ *from transformers(\S*) import ([^(\n]*|\([^)]*\))", text, re.M)
            for inner, names in imported:
                others = set(re.findall(r"\w+", names)) - PUBLIC
                if inner or others:
                    wrong.append(f"{name} imports {inner} {sorted(others)}")
            wrong += [f"{name} names {each}" for each in INSIDE if each in text]
        return wrong

    def test_what_is_known_of_transformers_stands_in_one_place(self):
        programs = self.programs()
        self.assertGreater(len(programs), 15)
        self.assertEqual(self.found(programs), [])
        # Each of the names is known there, or the list is out of date.
        own = programs["attention_capture.py"] + programs["inner_attention.py"]
        self.assertEqual([each for each in INSIDE if each.rstrip("_") not in own], [])

    def test_a_further_file_would_be_found(self):
        self.assertEqual(self.found({"new.py": "from transformers.cache_utils import X\n"}),
                         ["new.py imports .cache_utils ['X']"])
        self.assertEqual(self.found({"new.py": "getattr(module, 'layer_idx')\n"}),
                         ["new.py names layer_idx"])


if __name__ == "__main__":
    unittest.main()

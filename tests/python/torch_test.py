"""Tensors of torch, and torch in the same process, imported before and after kvbench. In the Python of
$KVBENCH_TORCH_PYTHON or .venv-model, with the package that runs this test; skipped where that has no torch."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kvbench
from streams import SOURCE

PYTHON = os.environ.get("KVBENCH_TORCH_PYTHON", str(SOURCE / ".venv-model/bin/python"))

REPLAY = """
import numpy as np
def check():
    from streams import stream, without
    q, k, v = stream(n=512)
    torch.set_num_threads(2)
    product = torch.randn(300, 300) @ torch.randn(300, 300)  # torch's own threads are at work
    options = dict(budget=32, threads=2)
    expected = without(kb.replay(q, k, v, "h2o", **options).record)
    tensors = [torch.from_numpy(each) for each in (q, k, v)]
    assert all(kb._core.shares_memory(each) for each in tensors)
    assert without(kb.replay(*tensors, "h2o", **options).record) == expected
    tensors[0].requires_grad_(True)
    assert without(kb.replay(*tensors, "h2o", **options).record) == expected
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        small = [torch.from_numpy(each).to(dtype) for each in (q, k, v)]
        doubles = [each.double().numpy() for each in small]
        assert without(kb.replay(*small, "h2o", **options).record) == without(
            kb.replay(*doubles, "h2o", **options).record), dtype
    strided = torch.from_numpy(q).transpose(0, 1).contiguous().transpose(0, 1)
    assert without(kb.replay(strided, *tensors[1:], "h2o", **options).record) == expected
    # A view with the negative bit; the memory has the opposite sign.
    tensors = [torch.from_numpy(each) for each in (q, k, v)]
    view = torch.complex(torch.zeros_like(tensors[1]), -tensors[1]).conj().imag
    assert view.is_neg() and torch.equal(view, tensors[1])
    assert without(kb.replay(tensors[0], view, tensors[2], "h2o", **options).record) == expected
    single = tensors[1].float()
    for wrong, words in ((single.to("meta"), "device meta"), (single.to_sparse(), "k.to_dense()"),
                         (torch.nested.nested_tensor([single, single[:3]]), "nested"),
                         (torch.quantize_per_tensor(single, 0.1, 0, torch.qint8), "k.dequantize()"),
                         (torch.complex(single, single), "must be float64")):
        try:
            kb.replay(tensors[0], wrong, tensors[2], "exact")
        except kb.Error as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{words} was taken")
    assert (torch.randn(300, 300) @ torch.randn(300, 300)).shape == product.shape
check()
"""


class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        asked = "import sys, numpy, torch; print(*sys.version_info[:2])"
        try:
            said = subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as missing:
            raise unittest.SkipTest(f"SKIPPED: no torch in {PYTHON}") from missing
        if said.stdout.split() != [str(each) for each in sys.version_info[:2]]:
            raise unittest.SkipTest(f"SKIPPED: {PYTHON} is Python {said.stdout.strip()}, the module "
                                    "was built for another")

        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        (Path(folder.name) / "kvbench").symlink_to(Path(kvbench.__file__).parent)
        paths = [folder.name, str(Path(__file__).parent)]
        cls.environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(paths)}

    def replayed(self, imports):
        done = subprocess.run([PYTHON, "-c", imports + REPLAY], capture_output=True, text=True,
                              timeout=300, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_tensors_with_torch_imported_first(self):
        self.replayed("import torch\nimport kvbench as kb\n")

    def test_tensors_with_torch_imported_last(self):
        self.replayed("import kvbench as kb\nkb.replay([[1.0]], [[1.0]], [[1.0]], 'exact', prompt=0)\n"
                      "import torch\n")

    def test_kvbench_does_not_import_torch(self):
        done = subprocess.run(
            [PYTHON, "-c", "import sys, kvbench as kb\nkb.replay([[1.0]], [[1.0]], [[1.0]], 'exact', "
             "prompt=0)\nassert 'torch' not in sys.modules and 'h5py' not in sys.modules"],
            capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()

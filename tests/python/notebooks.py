"""Runs the notebooks of apps/python/examples without Jupyter, and compares or records their outputs.
Usage: notebooks.py --record, in a Python that has kvbench, kvplot's packages and Pillow; KVBENCH_SOURCE is the checkout."""

import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
FOLDER = "apps/python/examples"
LARGEST_PICTURE = 60_000  # bytes
RUN = """
def outputs(cells):
    import ast, base64, contextlib, io, sys, types
    from pathlib import Path

    class Image:
        def __init__(self, path):
            self.png = Path(path).read_bytes()

    sys.modules["IPython"] = types.ModuleType("IPython")
    sys.modules["IPython.display"] = types.ModuleType("IPython.display")
    sys.modules["IPython.display"].Image = Image
    session = sys.modules["__main__"].__dict__
    for source in cells:
        tree, said, value = ast.parse(source), io.StringIO(), None
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(said):
            exec(compile(tree, "cell", "exec"), session)
            if last:
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), session)
        picture = base64.b64encode(value.png).decode() if isinstance(value, Image) else None
        yield {"text": said.getvalue(), "picture": picture}

import json, sys
target = sys.argv[2]
print(json.dumps([*outputs(json.load(open(sys.argv[1])))]), file=open(target, "w"))
"""


def names():
    return sorted(path.name for path in (SOURCE / FOLDER).glob("*.ipynb"))


def document(name):
    return json.loads((SOURCE / FOLDER / name).read_text(encoding="utf-8"))


def code_cells(name):
    return [each for each in document(name)["cells"] if each["cell_type"] == "code"]


@contextlib.contextmanager
def executed(name, python=sys.executable):
    """[{text, picture}] of the code cells, and the folder that they ran in, a copy of the checkout's."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("data", "configs"):
            Path(folder, part).symlink_to(SOURCE / part)
        place = Path(folder, FOLDER)
        place.mkdir(parents=True)
        for recorded in (SOURCE / FOLDER).glob("*.json"):
            (place / recorded.name).symlink_to(recorded)
        cells = Path(folder, "cells.json")
        cells.write_text(json.dumps(["".join(each["source"]) for each in code_cells(name)]))
        done = subprocess.run([python, "-c", RUN, str(cells), f"{folder}/outputs.json"], cwd=place, capture_output=True,
                              text=True, check=False, timeout=600)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
        yield json.loads(Path(folder, "outputs.json").read_text()), Path(folder)


def saved(name):
    """[{text, picture}] of the code cells, as the notebook has them."""
    found = []
    for cell in code_cells(name):
        text = "".join("".join(each["text"]) for each in cell["outputs"] if each["output_type"] == "stream")
        pictures = [each["data"]["image/png"] for each in cell["outputs"] if each["output_type"] == "display_data"]
        found.append({"text": text, "picture": "".join(pictures[:1]) or None})
    return found


def differences(old, new):
    """Lines about outputs that differ: in words, or in a number by more than two units of its last digit."""
    number = r"-?\d+\.?\d*(?:e-?\d+)?"
    found = []
    for k, (was, now) in enumerate(zip(old, new, strict=True)):
        if (was["picture"] is None) != (now["picture"] is None):
            found.append(f"cell {k}: a picture is missing or new")
        words = [re.sub(number, "#", each["text"]).split() for each in (was, now)]
        if words[0] != words[1]:
            found.append(f"cell {k}: {was['text']!r} is now {now['text']!r}")
            continue
        for a, b in zip(re.findall(number, was["text"]), re.findall(number, now["text"]), strict=True):
            digits = len(a.partition(".")[2].partition("e")[0])
            if abs(float(a) - float(b)) > 2.1 * 10.0**-digits * ("." in a):
                found.append(f"cell {k}: {a} is now {b}")
    return found


def small(png):
    """The same picture with at most 900 columns and 48 colours."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        image = image.convert("RGB")
        if image.width > 900:
            image = image.resize((900, round(image.height * 900 / image.width)), Image.Resampling.LANCZOS)
        target = io.BytesIO()
        image.quantize(48, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return base64.b64encode(target.getvalue()).decode()


def record(name):
    whole = document(name)
    with executed(name) as (outputs, _):
        cells = (each for each in whole["cells"] if each["cell_type"] == "code")
        for count, (cell, output) in enumerate(zip(cells, outputs, strict=True), 1):
            cell["execution_count"], cell["outputs"] = count, []
            if output["text"]:
                cell["outputs"].append({"name": "stdout", "output_type": "stream",
                                        "text": output["text"].splitlines(keepends=True)})
            if output["picture"]:
                cell["outputs"].append({"data": {"image/png": small(output["picture"])}, "metadata": {},
                                        "output_type": "display_data"})
    text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    (SOURCE / FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--record"], __doc__
    for each in names():
        record(each)

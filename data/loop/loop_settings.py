"""The settings of a sweep's results, and what kvbench measured of each of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from format.dump_file import Fault

from loop.loop_answers import Setting, Text

MEASURED = ("errors", "mass", "memory", "traffic")


def _name_of(record: dict[str, Any]) -> str:
    """Common members of the cells of one setting and its records of whole layers."""
    key = record["key"]
    members = {name: key.get(name) for name in ("sequence", "algorithm", "params", "seed",
                                             "storage", "source", "tokens")}  # fmt: skip
    return json.dumps([record["label"], members], sort_keys=True)


def settings_of(
    cells: list[dict[str, Any]], layers: Iterable[dict[str, Any]] = ()
) -> list[Setting]:
    """In the order of the results; the cells of one setting differ in layer and KV head alone.
    `layers`: the results' records of whole layers."""
    found: dict[str, Setting] = {}
    for cell in cells:
        key = cell["key"]
        setting = found.setdefault(
            _name_of(cell),
            Setting(
                key["sequence"],
                cell["label"],
                key["algorithm"],
                {name: value for name, value in key["params"].items() if value is not None},
                key.get("storage"),
                key["seed"],
                {},
            ),
        )
        assert isinstance(setting.cells, dict)
        setting.cells[key["layer"], key["kv_head"]] = cell
    for record in layers:
        outputs = found[_name_of(record)].outputs
        assert isinstance(outputs, dict)
        outputs[record["key"]["layer"]] = record
    return list(found.values())


def obstacle(setting: Setting, text: Text, layers: Iterable[int]) -> tuple[str, str] | None:
    """Status and reason of a setting that not every KV head of these layers has an answer of."""
    for layer in layers:
        for head in range(text.layers[layer].kv_heads):
            cell = setting.cells.get((layer, head))
            if cell is None:
                return "skipped", (
                    f"the sweep has no cell of it in layer {layer}, KV head {head}; a closed loop "
                    "takes all KV heads of a layer"
                )
            if cell["status"] != "ok":
                return cell["status"], f"layer {layer}, KV head {head}: {cell['reason']}"
    return None


def require_whole(settings: list[Setting], texts: Mapping[str, Text], config: object) -> None:
    """Fault where the sweep cuts texts, or takes a prompt that leaves nothing to read before."""
    for setting in settings:
        text = texts[setting.sequence]
        for cell in setting.cells.values():
            tokens = cell["key"]["tokens"]
            if tokens != text.tokens:
                raise Fault(
                    f"{config}: /select/tokens: replays {tokens} of {text.tokens} tokens; leave it "
                    "out, and give --tokens"
                )


def prompts_of(cells: list[dict[str, Any]], config: object) -> dict[str, int]:
    """The one prompt of each sequence."""
    found: dict[str, set[int]] = {}
    for cell in cells:
        found.setdefault(cell["key"]["sequence"], set()).add(cell["key"]["prompt_tokens"])
    for name, prompts in found.items():
        if len(prompts) > 1 or min(prompts) < 1:
            raise Fault(
                f"{config}: /replay/prompt_tokens: {name} has prompts of "
                f"{', '.join(map(str, sorted(prompts)))} tokens; give one of 1 or more"
            )
    return {name: prompts.pop() for name, prompts in found.items()}


def identity(setting: Setting, layers: Iterable[int]) -> str:
    """The id of a record; it changes with the text, the setting and the compressed layers."""
    chosen = sorted(layers)
    cells = sorted(cell["id"] for (layer, _), cell in setting.cells.items() if layer in chosen)
    return hashlib.sha256(json.dumps([setting.label, chosen, cells]).encode()).hexdigest()[:32]


def means(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of every number that all records have in one place; null where one is null."""
    result: dict[str, Any] = {}
    for name in records[0]:
        values = [record.get(name) for record in records]
        if all(isinstance(value, dict) for value in values):
            result[name] = means(values)  # type: ignore[arg-type]
        elif all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        ):
            result[name] = sum(values) / len(values)  # type: ignore[arg-type]
        elif any(value is None for value in values):
            result[name] = None
    return result


def memory_fraction(cells: list[dict[str, Any]]) -> float:
    """Bytes over bytes, as results.json has it of a setting: a mean of the layers' shares would
    weigh a window of 32 tokens as a cache of thousands."""
    memory = [cell["memory"] for cell in cells]
    if len({each["exact_bytes"] for each in memory}) == 1:
        return float(sum(each["fraction"] for each in memory) / len(memory))
    return float(sum(each["peak_bytes"] for each in memory) / sum(e["exact_bytes"] for e in memory))


def measured(setting: Setting, layers: Iterable[int]) -> dict[str, Any]:
    """kvbench's metrics on the uncompressed model's queries: means over heads and layers, except
    of memory's fraction, and `outputs`, the errors of whole layers' outputs, where every layer has
    them."""
    chosen = set(layers)
    cells = [cell for (layer, _), cell in setting.cells.items() if layer in chosen]
    result = means([{name: cell.get(name) for name in MEASURED} for cell in cells])
    result["memory"]["fraction"] = memory_fraction(cells)
    outputs = [setting.outputs[layer] for layer in sorted(chosen & set(setting.outputs))]
    if len(outputs) == len(chosen) and all(each["status"] == "ok" for each in outputs):
        result["outputs"] = means([each["errors"] for each in outputs])
    return result


def title(setting: Setting, among: Iterable[Setting]) -> str:
    """Label, and the parameters and seed in which settings of that label differ."""
    same = [each for each in among if each.label == setting.label]
    words = [setting.label]
    for name, value in setting.params.items():
        if any(each.params.get(name) != value for each in same):
            words.append(f"{name}={value if not isinstance(value, dict) else json.dumps(value)}")
    if any(each.seed != setting.seed for each in same):
        words.append(f"seed={setting.seed}")
    return " ".join(words)

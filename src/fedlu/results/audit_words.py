"""An audit as a page of Markdown, for whoever has to answer for it."""

from __future__ import annotations

import json
from typing import Any

SETS = ("forget", "test", "retained", "neighbourhood")


def in_words(result: dict[str, Any]) -> str:
    """What `audit.md` says; `result` is what `audit.json` holds."""
    lines = [f"# Audit of forgetting: {result['federation']}, {result['model']}, {result['method']}", ""]
    lines += [f"Goal: {result['goal']}. {result['statement']}", ""]
    against = "re-training" if "retrained" in result else "a coin (no re-trained model was made)"
    lines += [f"- **{view}: {said}**, by comparison with {against}" for view, said in result["verdict"].items()]
    lines += _ranks(result) + _attacks(result["membership"])
    lines += ["", "## Relearning: steps until the forgotten are known as well as before", ""]
    lines += [f"- {model}: {json.dumps(steps)}" for model, steps in result["relearning"].items()] or ["- not measured"]
    lines += ["", "## What forgetting cannot reach", ""]
    lines += [f"- {name}: {number}" for name, number in result["reach"].items()]
    lines += ["", "## Cost, hashes, versions", ""]
    for part in ("cost", "hashes", "versions"):
        lines += [f"- {name}: {value}" for name, value in result[part].items()]
    lines += [f"- {name} is absent: {why}" for name, why in result["absent"].items()]
    return "\n".join(lines) + "\n"


def _ranks(result: dict[str, Any]) -> list[str]:
    models = [name for name in ("raw", "forgotten", "retrained") if name in result]
    lines: list[str] = []
    for metric in ("hits@1", "mrr", "hits@3", "hits@10"):
        lines += ["", f"## {metric} x 100", "", "| view | set | " + " | ".join(models) + " |"]
        lines.append("|---|---|" + "---|" * len(models))
        for view in result["verdict"]:
            for name in SETS:
                cells = [result[model][view].get(name, {}).get(metric) for model in models]
                shown = ["" if cell is None else f"{100 * cell:.2f}" for cell in cells]
                lines.append(f"| {view} | {name} | " + " | ".join(shown) + " |")
    return lines


def _attacks(membership: dict[str, Any]) -> list[str]:
    lines = ["", "## Membership inference", "", "| view | model | AUC | 95 % | caught at 1 % false alarms | pairs |"]
    lines.append("|---|---|---|---|---|---|")
    for model, views in membership.items():
        for view, found in views.items():
            between = f"{found['low']:.3f} to {found['high']:.3f}"
            lines.append(
                f"| {view} | {model} | {found['auc']:.3f} | {between} | {found['caught']:.3f} | {found['members']} |"
            )
    return lines

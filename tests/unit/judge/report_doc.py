"""Makes the field tables of docs/report.md from the wire types' docstrings.

``PYTHONPATH=protocol python tests/unit/judge/report_doc.py`` writes them between the file's marks.
"""

from __future__ import annotations

import ast
from pathlib import Path

from astraeus_protocol import devices, readings, report

DOC = Path(__file__).parents[3] / "docs" / "report.md"
BEGIN, END = "<!-- fields -->\n", "<!-- /fields -->\n"
ORDER = ("Report", "Job", "Step", "Worker", "Metric", "Oom", "Process", "Wait", "Place", "Edge", "Finished", "Said",
         "Work", "Chatter", "Ras", "RasComm", "RasGroup", "RasRank", "Gpu", "Rail", "Unknown",
         "Stacks", "Stack", "ThreadStack", "End", "Reply", "StopFile", "DropJob", "TakeStacks")


def tables() -> str:
    """One heading and table for each record."""
    trees = [ast.parse(Path(module.__file__).read_text(encoding="utf-8")) for module in (report, readings, devices)]
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    return "\n".join(_table(name, classes[name]) for name in ORDER)


def _table(name: str, node: ast.ClassDef) -> str:
    lines = [f"### {name}", "", ast.get_docstring(node) or "", "", "| field | type | default | meaning |",
             "|---|---|---|---|"]
    for place, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        default = "" if item.value is None else f"`{ast.unparse(item.value)}`"
        following = node.body[place + 1] if place + 1 < len(node.body) else None
        kind = ast.unparse(item.annotation).replace("|", "or")
        lines.append(f"| `{item.target.id}` | {kind} | {default} | {_words(following)} |")
    return "\n".join(lines) + "\n"


def _words(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split()).replace("|", "or")
    return ""


def with_tables(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + tables() + "\n" + END + after


if __name__ == "__main__":
    DOC.write_text(with_tables(DOC.read_text(encoding="utf-8")), encoding="utf-8")

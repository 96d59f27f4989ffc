"""Where the tiny plugin is, and what can be wrong with it, without running it."""

import ast
from pathlib import Path

PLUGIN = Path(__file__).with_name("tiny_plugin.py")


def _wrong():
    for node in ast.parse(PLUGIN.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "WRONG":
            return ast.literal_eval(node.value)
    raise LookupError("tiny_plugin.py has no WRONG")


WRONG = _wrong()

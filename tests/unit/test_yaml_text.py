"""Texts stay texts in YAML, for every parser that may read it."""

import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.yaml_text import yaml_text

YAML_1_1 = {
    "bool": r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
    "int": r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+",
    "float": r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9_]*[0-9][0-9_]*)([eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "null": r"~|null|Null|NULL|",
    "timestamp": r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"(([ \t]*)Z|[-+][0-9]{1,2}(:[0-9]{2})?)?)?",
    "merge": r"<<",
    "value": r"=",
}
"""yaml.org/type: the types whose texts need no tag. A float has one dot there, and a digit, as parsers have it."""

YAML_1_2 = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
"""The core schema, 10.3.2."""

GO_YAML = r"[-+]?(0[bBoO]?[0-9]*|0[xX][0-9a-fA-F]+|[0-9]+)|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
"""go-yaml v2 and v3 read numbers after all underscores are taken out."""


def another_type(text: str) -> bool:
    """Whether a parser makes something else than a text of it."""
    is_go_number = re.match(r"[-+.0-9]", text) and re.fullmatch(GO_YAML, text.replace("_", ""))
    return bool(is_go_number) or any(re.fullmatch(rule, text) for rule in [*YAML_1_1.values(), *YAML_1_2.values()])


def has_quotes(node: yaml.Node) -> bool:
    return node.style in ("'", '"')


LIKE_NUMBERS = st.text("0123456789+-._:eExXoObBTZaf ", max_size=8)
WORDS = st.sampled_from(
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", "-.inf", ".nan", "~", "<<"]
)
CASES = st.sampled_from((str.lower, str.upper, str.title))
TEXTS = LIKE_NUMBERS | st.builds(lambda word, case: case(word), WORDS, CASES) | any_text(max_size=30)


@given(TEXTS)
@examples(1000)
@example("y")
@example("4123e05")
@example(".5e1")
@example("-_1")
@example("1:30")
@example("\x85 \u2028\u2029 ")
def test_a_text_that_a_parser_reads_as_another_type_has_quotes_as_key_and_as_value(text: str) -> None:
    written = yaml_text({text: [text]})
    assert yaml.safe_load(written) == {text: [text]}
    [(key, values)] = yaml.compose(written, Loader=yaml.SafeLoader).value
    if another_type(text):
        assert has_quotes(key)
        assert has_quotes(values.value[0])


@pytest.mark.parametrize("text", ["main", "nvcr.io/nvidia", "--flag", "v1", "GPU 0", "no GPU", "/dev/nvidia0", "."])
def test_plain_texts_have_none(text: str) -> None:
    assert yaml_text([text]) == f"- {text}\n"


def test_what_occurs_twice_is_written_twice() -> None:
    twice = {"a": ["x"]}
    assert yaml_text([twice, twice]) == "- a:\n  - x\n- a:\n  - x\n"


def test_what_is_no_text_is_written_as_it_is() -> None:
    assert yaml_text({"b": 1, "a": [True, None, 1.5]}) == "b: 1\na:\n- true\n- null\n- 1.5\n"
    assert yaml_text({"b": 1, "a": 2}, sort_keys=True) == "a: 2\nb: 1\n"

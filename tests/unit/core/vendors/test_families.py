"""The data file: what follows from it is up to date, and what makes no sense in it is refused."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from tests.scripts import script

from purser.core.decoding import UnreadableError
from purser.core.vendors import catalogue
from purser.core.vendors.catalogue import FAMILIES, read_families

ROOT = Path(__file__).parents[4]
DATA = (Path(catalogue.__file__).parent / "families.toml").read_text()
DCU_REGISTER = 'register = { annotation = "hami.io/node-dcu-register", encoding = "colons" }\n'
CAPACITY = 'capacity = { id = "{node}-{index}", counted_by = "devices", memory_mib = 1 }\n'
GENERATE = script("generate_vendors")


def test_schema_and_page_are_up_to_date():
    assert (ROOT / GENERATE.SCHEMA).read_text() == GENERATE.schema(), "run scripts/generate_vendors.py"
    assert (ROOT / GENERATE.PAGE).read_text().endswith(GENERATE.tables()), "run scripts/generate_vendors.py"


def test_the_data_keeps_to_the_schema_and_what_does_not_is_refused_by_both():
    schema = json.loads(GENERATE.schema())
    jsonschema.validate(tomllib.loads(DATA), schema)
    wrong = DATA.replace('encoding = "colons"', 'encoding = "xml"', 1)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(wrong), schema)
    with pytest.raises(UnreadableError, match="xml"):
        read_families(wrong.encode())


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("hygon.com/dcumem", "hygon.com/dcunum", "assigns hygon.com/dcunum twice, the second time to Hygon DCU"),
        ("hygon.com/dcunum", "nvidia.com/gpu", "assigns nvidia.com/gpu"),
        ("{devices}", "{uuids}", "has unknown field {uuids} in a record of Cambricon MLU"),
        ("memory_mib = 2184 }", "memory_mib = 9999 }", "not sorted by memory"),
        ("unset = 100 }\nregister", "unset = 101 }\nregister", "unset"),
        ("several_are_whole", "several_whole", "several_whole"),
        (DCU_REGISTER, "", "either register or capacity for Hygon DCU, but sets neither"),
        (DCU_REGISTER, DCU_REGISTER + CAPACITY, "either register or capacity for Hygon DCU, but sets both"),
        ("[common.records]", "[common.records", "cannot be read"),
        ("memory_mib = 65536", "memory_mib = 0", "how much memory a device of MetaX GPU has"),
    ],
)
def test_data_that_makes_no_sense_is_refused_with_its_place(before, after, sentence):
    assert before in DATA
    with pytest.raises(UnreadableError, match=sentence):
        read_families(DATA.replace(before, after).encode())


def test_every_family_has_hamis_common_records():
    assert all(family.records["hami.io/bind-phase"] == "allocating" for family in FAMILIES)

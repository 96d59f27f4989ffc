"""What the documentation shows works: commands parse, make targets and files exist, YAML is YAML."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main
import yaml
from markdown.extensions.toc import slugify

from purser.cli import app
from purser.lab.driver import profiles

ROOT = Path(__file__).parents[3]
OUTSIDE = sorted(ROOT.glob("*.md"))
"""Pages that are no part of the site, whose links mkdocs checks."""
PAGES = sorted([*OUTSIDE, *(ROOT / "docs").rglob("*.md")])


RECORDS = sorted((ROOT / "docs" / "pictures").glob("*.txt"))
"""Commands with what they printed, from which pictures are drawn."""


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield page.name, block


def commands() -> Iterator[object]:
    for page, block in [*blocks("console"), *((path.name, path.read_text()) for path in RECORDS)]:
        for line in block.splitlines():
            if line.startswith("$ "):
                for command in line[2:].split("&&"):
                    words = shlex.split(command, comments=True)
                    words = words[: min(words.index(end) if end in words else len(words) for end in "|>")]
                    yield pytest.param(words, id=f"{page}: {' '.join(words)[:60]}")


def check_purser(words: list[str]) -> None:
    group = typer.main.get_command(app)
    # Parsing alone: the innermost command is found and its options are read, nothing runs.
    while hasattr(group, "commands") and not (group.invoke_without_command and (not words or words[0][0] == "-")):
        assert words[0] in group.commands, f"there is no command {words[0]}"
        group = group.commands[words.pop(0)]
    group.make_context("purser", words, resilient_parsing=False).close()


def check_helm(words: list[str]) -> None:
    """An upgrade forgets values without an option to keep them; a value that the chart lacks is set for nothing."""
    if words[0] == "upgrade":
        assert "--reset-then-reuse-values" in words
    values = yaml.safe_load((ROOT / "deploy/helm/purser/values.yaml").read_text())
    for option, value in pairwise(words):
        if option == "--set":
            found = values
            for part in value.partition("=")[0].split("."):
                assert found == {} or part in found, value  # {} takes whatever there is
                found = found[part] if found else found


@pytest.mark.parametrize("words", list(commands()))
def test_every_command_shown_can_be_given(words: list[str]) -> None:
    program, *rest = words
    if program == "purser":
        check_purser(rest)
    elif program == "helm" and rest[1] == "purser":
        check_helm(rest)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
    elif program == ".ci/run":
        assert (ROOT / program).exists()
    for word in rest:
        if word.startswith(("examples/", "deploy/")):
            assert (ROOT / word).exists(), f"{word} is not there"


def links() -> Iterator[object]:
    for page in OUTSIDE:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not link.startswith("https:"):
                yield pytest.param(page, link, id=f"{page.name}: {link}")


@pytest.mark.parametrize(("page", "link"), list(links()))
def test_every_link_outside_the_site_leads_somewhere(page: Path, link: str) -> None:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    assert target.exists()
    headings = re.findall(r"^#+ (.+)", target.read_text(), re.MULTILINE) if anchor else []
    assert anchor in {"", *(slugify(heading, "-") for heading in headings)}


@pytest.mark.parametrize("form", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*")), ids=lambda path: path.name)
def test_forms_for_issues_name_commands_that_can_be_given(form: Path) -> None:
    text = form.read_text()
    assert yaml.safe_load(text)
    for command in re.findall(r"`(?:[^`]* )?purser ([^`]+)`", text):
        check_purser(command.split())


@pytest.mark.parametrize(("page", "block"), list(blocks("yaml")))
def test_every_yaml_shown_is_yaml(page: str, block: str) -> None:
    assert list(yaml.safe_load_all(block))


def test_the_profiles_that_the_lab_page_lists_are_those_that_ship() -> None:
    text = (ROOT / "docs" / "lab.md").read_text()
    listed = re.search(r"Profiles that ship with Purser: (.*?);", text, re.DOTALL)
    assert listed
    assert set(re.findall(r"`([^`]+)`", listed.group(1))) == set(profiles.names())


def test_every_resource_and_annotation_the_pods_page_lists_is_one_that_purser_reads() -> None:
    text = (ROOT / "docs" / "pods.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src" / "purser" / "core").rglob("*.py"))
    names = set(re.findall(r"`((?:nvidia\.com|hami\.io|volcano\.sh|aliyun\.com|purser\.dev)/[a-z-]+)", text))
    assert len(names) > 12
    assert {name for name in names if name not in source} == set()

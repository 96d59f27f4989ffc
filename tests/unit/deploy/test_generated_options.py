"""What scripts/generate_options.py makes of the servers' settings is what is in the repository."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scripts import script

from purser.agent.settings import AgentSettings
from purser.operator.settings import OperatorSettings
from purser.options import Option, OptionField, default_text, settings_of
from purser.scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[3]
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/purser/values.yaml").read_text())
IN_THE_CHART = [
    each
    for kind in (AgentSettings, SchedulerSettings, OperatorSettings)
    for each in settings_of(kind)
    if isinstance(each.option, Option) and each.option.value
]


def written() -> dict[Path, str]:
    return dict(script("generate_options").written(ROOT))


def test_values_schema_and_page_are_what_the_settings_make() -> None:
    files = written()
    assert len(files) == 3
    for path, text in files.items():
        assert (ROOT / path).read_text() == text, "run scripts/generate_options.py"


def value(setting: OptionField) -> Any:
    found: Any = VALUES
    for part in setting.option.value.split("."):  # type: ignore[union-attr]
        found = found[part]
    return found


@pytest.mark.parametrize("setting", IN_THE_CHART, ids=lambda each: each.option.value)
def test_the_charts_default_is_the_servers(setting: OptionField) -> None:
    assert default_text(value(setting)) == default_text(setting.default)
    template = "".join(path.read_text() for path in (ROOT / "deploy/helm/purser/templates").iterdir())
    assert setting.flag in template

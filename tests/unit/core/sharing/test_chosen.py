"""Which of several files a node goes by."""

import pytest

from purser.core.sharing import ConfigFallback, SharingError, chosen_config

NAMED, SINGLE, EMPTY = ConfigFallback.NAMED, ConfigFallback.SINGLE, ConfigFallback.EMPTY


@pytest.mark.parametrize(
    ("label", "names", "default", "fallbacks", "chosen"),
    [
        ("a", ["a", "b"], "b", (), "a"),
        ("", ["a", "b"], "b", (EMPTY,), "b"),
        ("", ["default", "b"], "", (NAMED, SINGLE), "default"),
        ("", ["a", "..data"], "", (NAMED, SINGLE), "a"),
        ("", ["a", "b"], "", (NAMED, SINGLE, EMPTY), ""),
        ("c", ["a", "b"], "a", (EMPTY,), None),
        ("", ["a", "b"], "c", (EMPTY,), None),
        ("", ["a", "b"], "", (NAMED, SINGLE), None),
        ("", ["a"], "", (), None),
        ("..data", ["..data"], "", (), None),
    ],
)
def test_label_then_default_then_fallbacks(
    label: str, names: list[str], default: str, fallbacks: tuple[ConfigFallback, ...], chosen: str | None
) -> None:
    if chosen is None:
        with pytest.raises(SharingError, match=r"the files are|no files"):
            chosen_config(label, names, default=default, fallbacks=fallbacks)
    else:
        assert chosen_config(label, names, default=default, fallbacks=fallbacks) == chosen

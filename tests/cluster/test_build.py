"""How the build finds Debian's sources: from the package lists the machine has already."""

import pytest

from .kubernetes.apt import source_lines, source_stanzas

STANZAS = """\
Types: deb
# a comment
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.invalid/other
Suites: bookworm
Components: stable

Types: deb
Enabled: no
URIs: http://mirror.invalid/off
Suites: bookworm
Components: main
"""


def test_a_debian_stanza_becomes_a_source_stanza_and_keeps_its_key() -> None:
    stanza = source_stanzas(STANZAS, "bookworm")
    assert "Types: deb-src\n" in stanza
    assert "URIs: http://mirror.invalid/debian\n" in stanza
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in stanza


def test_other_vendors_and_disabled_stanzas_are_left_out() -> None:
    stanzas = source_stanzas(STANZAS, "bookworm")
    assert stanzas.count("Types:") == 1
    assert "other" not in stanzas and "/off" not in stanzas


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deb http://mirror.invalid/debian bookworm main", "deb-src http://mirror.invalid/debian bookworm main\n"),
        (
            "deb [signed-by=/k.gpg] http://mirror.invalid/debian bookworm-updates main contrib",
            "deb-src [signed-by=/k.gpg] http://mirror.invalid/debian bookworm-updates main contrib\n",
        ),
        ("deb http://mirror.invalid/docker bookworm stable", ""),
        ("# deb http://mirror.invalid/debian bookworm main", ""),
        ("deb-src http://mirror.invalid/debian bookworm main", ""),
    ],
    ids=["plain", "with options", "another vendor", "commented out", "a source line already"],
)
def test_one_line_entries(line: str, expected: str) -> None:
    assert source_lines(line, "bookworm") == expected

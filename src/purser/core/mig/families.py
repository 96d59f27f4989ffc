"""In which MIG devices boards are cut, by the names of their profiles: what layouts are made of, and what names nodes
can list MIG devices by.

Without places and memory, which are known of fewer boards (`purser.core.mig.profiles`). Sources: those named there,
NVIDIA's MIG user guide, and the default layouts of mig-parted 0.9.
"""

import msgspec

from purser.core.device.pci import MIG_FAMILIES


class MigFamily(msgspec.Struct, frozen=True):
    """How GPUs of a family are cut."""

    name: str
    """In `MIG_FAMILIES`."""
    profiles: dict[str, int]
    """How many of each profile fill a GPU."""
    balanced: dict[str, int]

    @property
    def devices(self) -> tuple[str, ...]:
        """PCI device ids of its GPUs, four hexadecimal digits."""
        return MIG_FAMILIES[self.name]


FAMILIES = (
    MigFamily(
        "A100, A800: 40 GB",
        {"1g.5gb": 7, "1g.5gb+me": 1, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
        {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    ),
    MigFamily(
        "A100, A800, H100, H800: 80 GB",
        {"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
        {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    ),
    MigFamily(
        "A30",
        {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
        {"1g.6gb": 2, "2g.12gb": 1},
    ),
    MigFamily(
        "H100, H800: 94 GB",
        {"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1},
        {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
    ),
    MigFamily(
        "A100, H100, GH200, H20: 96 GB",
        {"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1},
        {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    ),
    MigFamily(
        "H200, H20: 141 GB",
        {"1g.18gb": 7, "1g.18gb+me": 1, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
        {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
    ),
    MigFamily(
        "GH200: 144 GB",
        {"1g.18gb": 7, "1g.18gb+me": 1, "1g.36gb": 4, "2g.36gb": 3, "3g.72gb": 2, "4g.72gb": 1, "7g.144gb": 1},
        {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
    ),
    MigFamily(
        "B200",
        {"1g.23gb": 7, "1g.23gb+me": 1, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
        {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
    ),
    MigFamily(
        "GB200",
        {"1g.24gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1},
        {"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1},
    ),
    MigFamily(
        "GB200",  # with 186 GB, as newer drivers have it
        {"1g.23gb": 7, "1g.23gb+me": 1, "1g.47gb": 4, "2g.47gb": 3, "3g.93gb": 2, "4g.93gb": 1, "7g.186gb": 1},
        {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
    ),
    MigFamily(
        "B300",
        {"1g.34gb": 7, "1g.34gb+me": 1, "1g.67gb": 4, "2g.67gb": 3, "3g.135gb": 2, "4g.135gb": 1, "7g.269gb": 1},
        {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
    ),
    MigFamily(
        "GB300",
        {"1g.35gb": 7, "1g.35gb+me": 1, "1g.70gb": 4, "2g.70gb": 3, "3g.139gb": 2, "4g.139gb": 1, "7g.278gb": 1},
        {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
    ),
    MigFamily(
        "RTX PRO 6000 Blackwell",
        {
            "1g.24gb": 4,
            "1g.24gb+gfx": 4,
            "1g.24gb-me": 4,
            "1g.24gb+me.all": 1,
            "2g.48gb": 2,
            "2g.48gb+gfx": 2,
            "2g.48gb-me": 2,
            "2g.48gb+me.all": 1,
            "4g.96gb": 1,
            "4g.96gb+gfx": 1,
        },
        {"1g.24gb": 2, "2g.48gb": 1},
    ),
)
"""Not of all that can MIG: names of profiles end with memory sizes that are not known for all. A family may be there
twice, with other sizes: the MIG manager takes the entry whose profiles the GPU's driver offers."""


def profile_names() -> frozenset[str]:
    """Of all that can be made by layouts, and of the same with the media extension, which a driver may offer beside
    them."""
    named = {profile for family in FAMILIES for profile in family.profiles}
    plain = {name for name in named if name.endswith("gb")}
    return frozenset({*named, *(f"{name}+me" for name in plain if name.startswith(("1g.", "2g.")))})

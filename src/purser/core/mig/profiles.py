"""MIG profiles: the sizes in which a GPU can be cut, and where on it each may lie.

A driver's own answers take precedence (nvmlDeviceGetGpuInstanceProfileInfo,
nvmlDeviceGetGpuInstancePossiblePlacements): a `MigKind` can be made of them. The tables here are for code without a
driver, such as simulations and plans for future nodes.

Sources: the profiles of go-nvml's mock GPUs for A30, A100 and the multiprocessors of B200; what nvidia-smi lists on an
H100, and the multiprocessors of H200, which has the same. Memory of 1g and 3g of H200 and of 1g of B200 is what users
report; for the rest of these two it is estimated, because the mock gives 1g more than an eighth. That of H100 with 94
and 96 GB is estimated by the shares of the one with 80. Where the mock has three memory slices for 3g, seven for 7g and
seven places for 1g of double memory on GPUs newer than A100, it contradicts NVIDIA's MIG user guide and its own A100:
here all are divided like the A100.
"""

import math
from collections.abc import Mapping

import msgspec

from purser.core.device.pci import MIG_FAMILIES

MAX_MEMORY_SLICES = 8
"""Of a GPU: sets of slices are bits of a small number."""

MAX_MASKS = 2 << MAX_MEMORY_SLICES
"""Of what is taken of any GPU."""

SUFFIXES = {
    "1_SLICE_REV1": "+me",
    "2_SLICE_REV1": "+me",
    "1_SLICE_GFX": "+gfx",
    "2_SLICE_GFX": "+gfx",
    "3_SLICE_GFX": "+gfx",
    "4_SLICE_GFX": "+gfx",
    "1_SLICE_NO_ME": "-me",
    "2_SLICE_NO_ME": "-me",
    "1_SLICE_ALL_ME": "+me.all",
    "2_SLICE_ALL_ME": "+me.all",
}
"""Suffixes of the names of NVML's profiles, for drivers that do not report the names."""


def profile_name(slices: int, memory_mib: int, total_bytes: int, suffix: str = "") -> str:
    """``3g.20gb``: the share of the GPU's memory in eighths, rounded up, of its gigabytes (the rule of go-nvlib).
    Where the GPU's is not known, 0, the instance's own gigabytes, rounded up."""
    if not total_bytes:
        return f"{slices}g.{-(-memory_mib // 1024)}gb{suffix}"
    share = math.ceil(memory_mib * (1 << 20) / total_bytes * 8) / 8
    gigabytes = math.floor(share * -(-total_bytes // (1 << 30)) + 0.5)  # half of 141 GB is 71, and not 70 as it is even
    return f"{slices}g.{gigabytes}gb{suffix}"


class MigProfile(msgspec.Struct, frozen=True):
    """A size of GPU instance."""

    name: str
    """``1g.5gb``."""
    number: int
    """NVML's, of its constants ``NVML_GPU_INSTANCE_PROFILE_*``."""
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    """The memory slices at which it may begin, ascending."""
    memory_mib: int
    multiprocessors: int
    takes_media: bool = False
    """It has the one media extension of the GPU (``+me``): only one such instance at a time."""


class MigKind(msgspec.Struct, frozen=True):
    """GPUs that are cut alike.

    A set of its slices is a number with a bit per memory slice, and one more for the media extension: the mask of what
    is taken.
    """

    name: str
    slices: int
    """Of memory."""
    profiles: tuple[MigProfile, ...]
    devices: tuple[str, ...] = ()
    """PCI device ids, four hexadecimal digits."""

    def __post_init__(self) -> None:
        """Raises ValueError for an impossible value, from a driver or a table."""
        if not 0 < self.slices <= MAX_MEMORY_SLICES:
            raise ValueError(f"{self.name} has {self.slices} memory slices: must be from 1 to {MAX_MEMORY_SLICES}")
        for profile in self.profiles:
            if not profile.starts or any(
                not 0 <= start <= self.slices - profile.memory_slices for start in profile.starts
            ):
                raise ValueError(f"{self.name}: {profile.name} has no start, or a start outside the GPU")

    @property
    def compute_slices(self) -> int:
        """How many there are: as many as the largest profile has."""
        return max(profile.compute_slices for profile in self.profiles)

    @property
    def masks(self) -> int:
        """How many masks there are: each is a number below."""
        return 2 << self.slices

    def profile(self, name: str) -> MigProfile | None:
        """The profile of that name; None: these GPUs offer none."""
        return next((each for each in self.profiles if each.name == name), None)

    def bits(self, profile: MigProfile, start: int) -> int:
        """What an instance that begins there takes."""
        return ((1 << profile.memory_slices) - 1) << start | profile.takes_media << self.slices


def seven_slice_kind(
    name: str,
    gigabytes: tuple[int, ...],
    memory_mib: tuple[int, ...],
    processors: tuple[int, ...],
    devices: tuple[str, ...] = (),
) -> MigKind:
    """GPUs of seven compute and eight memory slices, as all but the small ones are. Gigabytes and memory of one, two,
    four and all memory slices; multiprocessors of each of the seven profiles. Raises ValueError for other numbers."""
    one, two, four, eight = zip(gigabytes, memory_mib, strict=True)
    shapes = (
        (f"1g.{one[0]}gb", 0, 1, 1, tuple(range(7)), one[1]),
        (f"1g.{one[0]}gb+me", 7, 1, 1, tuple(range(7)), one[1]),
        (f"1g.{two[0]}gb", 9, 1, 2, (0, 2, 4, 6), two[1]),
        (f"2g.{two[0]}gb", 1, 2, 2, (0, 2, 4), two[1]),
        (f"3g.{four[0]}gb", 2, 3, 4, (0, 4), four[1]),
        (f"4g.{four[0]}gb", 3, 4, 4, (0,), four[1]),
        (f"7g.{eight[0]}gb", 4, 7, 8, (0,), eight[1]),
    )
    profiles = (
        MigProfile(*shape, count, takes_media=shape[0].endswith("+me"))
        for shape, count in zip(shapes, processors, strict=True)
    )
    return MigKind(name, 8, tuple(profiles), devices)


_KINDS = (
    MigKind(
        "A30",
        4,
        (
            MigProfile("1g.6gb", 0, 1, 1, (0, 1, 2, 3), 5836, 14),
            MigProfile("1g.6gb+me", 7, 1, 1, (0, 1, 2, 3), 5836, 14, takes_media=True),
            MigProfile("2g.12gb", 1, 2, 2, (0, 2), 11672, 28),
            MigProfile("2g.12gb+me", 8, 2, 2, (0, 2), 11672, 28, takes_media=True),
            MigProfile("4g.24gb", 3, 4, 4, (0,), 23344, 56),
        ),
        MIG_FAMILIES["A30"],
    ),
    seven_slice_kind(
        "A100-40GB",
        (5, 10, 20, 40),
        (4864, 9856, 19968, 40192),
        (14, 14, 14, 28, 42, 56, 98),
        MIG_FAMILIES["A100, A800: 40 GB"],
    ),
    seven_slice_kind(
        "A100-80GB",
        (10, 20, 40, 80),
        (9856, 19968, 40192, 80384),
        (14, 14, 14, 28, 42, 56, 98),
        ("20b2", "20b5", "20f3", "20f5"),
    ),
    seven_slice_kind(
        "H100-80GB",
        (10, 20, 40, 80),
        (9984, 20096, 40448, 81152),
        (16, 16, 26, 32, 60, 64, 132),
        ("2322", "2324", "2330", "2331"),
    ),
    seven_slice_kind(
        "H100-94GB",
        (12, 24, 47, 94),
        (11776, 23552, 47488, 95360),
        (16, 16, 26, 32, 60, 64, 132),
        MIG_FAMILIES["H100, H800: 94 GB"],
    ),
    seven_slice_kind(
        "H100-96GB",
        (12, 24, 48, 96),
        (12032, 24064, 48512, 97408),
        (16, 16, 26, 32, 60, 64, 132),
        ("233d", "2342"),
    ),
    seven_slice_kind(
        "H200",
        (18, 35, 71, 141),
        (16384, 35712, 71424, 143360),
        (16, 16, 26, 32, 60, 64, 132),
        MIG_FAMILIES["H200, H20: 141 GB"],
    ),
    seven_slice_kind(
        "B200",
        (23, 45, 90, 180),
        (20992, 45056, 91136, 182272),
        (18, 18, 18, 36, 54, 72, 126),
        MIG_FAMILIES["B200"],
    ),
)

MIG_KINDS: Mapping[str, MigKind] = {kind.name: kind for kind in _KINDS}
"""By name."""


def kind_of_device(device: str) -> MigKind | None:
    """How a GPU of that PCI device id is cut; None: not known here."""
    return next((kind for kind in _KINDS if device.lower() in kind.devices), None)


def compute_slices_of(device: str) -> int:
    """How many compute slices a GPU of that PCI device id has, by NVIDIA's MIG user guide: seven, but for the small."""
    if (kind := kind_of_device(device)) is not None:
        return kind.compute_slices
    return 4 if device.lower() in MIG_FAMILIES["RTX PRO 6000 Blackwell"] else 7

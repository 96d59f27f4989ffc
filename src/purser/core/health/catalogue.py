"""NVIDIA's catalogue of Xids: what each one is, and what NVIDIA says is to be done at once. Pure facts.

An Xid is the driver's error report for a GPU. Numbers, and actions in NVIDIA's spelling, are those of the catalogue's
column "Resolution Bucket (Immediate Action)" as of October 2025, Ampere and newer
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). The words are short ones of our own.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Action(StrEnum):
    """What NVIDIA's catalogue says is to be done at once."""

    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    RESTART_VM = "RESTART_VM"
    RESTART_BM = "RESTART_BM"
    """Restart the machine ("bare metal")."""
    RESET_GPU = "RESET_GPU"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    UPDATE_SWFW = "UPDATE_SWFW"
    """Update software or firmware."""
    CHECK_UVM = "CHECK_UVM"
    """Look at what unified memory reported beside it."""
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    """Follow the Xid before it, which ended the programs."""
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    """Drain and reset, and watch the Xids of row remapping or page retirement beside it."""
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"
    """Up to NVLink 4: a reset, and then by the registers that the driver logged."""
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"
    """NVLink 5: by the unit and status that the driver logged, from nothing at all to a reset. NVML's event has
    neither; the driver's recovery action has the result."""
    XID_154 = "XID_154"
    """By the driver's recovery action: this Xid says that it changed."""
    NONE_GIVEN = ""
    """The catalogue has the Xid, or not even that, and no action for it."""


class Xid(msgspec.Struct, frozen=True):
    """One entry of the catalogue."""

    action: Action
    words: str = ""
    """What it is; empty for those that the catalogue calls unused."""


_ENGINES = {
    **{xid: f"error in copy engine {number}" for number, xid in enumerate((39, 40, 41, 70, 71, 72, 75, 76, 77, 85))},
    **{xid: f"error in copy engine {number}" for number, xid in enumerate(range(126, 136), 10)},
    **{xid: f"NVDEC{number} error" for number, xid in enumerate((68, 83, 84, 88, 89, 96, 97, 98))},
    **{xid: f"NVJPG{number} error" for number, xid in enumerate((82, *range(99, 106)))},
    86: "OFA0 error",
    139: "OFA1 error",
}

_XIDS_BY_ACTION: Mapping[Action, Mapping[int, str]] = {
    Action.RESTART_APP: {
        8: "channel idle timeout",
        11: "corrupted push buffer stream",
        13: "graphics engine exception",
        25: "illegal push buffer stream",
        31: "GPU memory page fault",
        32: "corrupted push buffer stream",
        60: "video processor exception",
        69: "graphics engine class error",
        80: "corrupted data sent to the GPU",
        94: "contained memory error",
        **_ENGINES,
    },
    Action.IGNORE: {
        14: "",
        37: "unimplemented firmware method",
        38: "firmware watchdog timeout",
        43: "a program's channel was reset",
        44: "graphics engine fault during a context switch",
        63: "memory row remapped or page retired",
        66: "illegal register access by the driver",
        67: "illegal register access by the driver",
        92: "high rate of corrected ECC errors",
        93: "InfoROM wear limit exceeded",
        106: "SMBPBI test message",
        107: "silent SMBPBI test message",
        108: "",
        121: "C2C link error",
        137: "NVLink privilege error",
        141: "CUDA fast path error",
        152: "DLA SMMU error",
        153: "DLA timeout",
        157: "resource could not be retired",
        160: "memory channel retired",
        161: "memory channel could not be retired",
    },
    Action.RESET_GPU: {
        46: "GPU stopped processing",
        62: "internal micro-controller halt",
        64: "row remapping or page retirement failed",
        95: "uncontained memory error",
        109: "context switch timeout",
        110: "security fault",
        119: "GSP RPC timeout",
        120: "GSP error",
        136: "link training failed",
        140: "unrecovered ECC error",
        143: "GPU initialization error",
        155: "software-defined NVLink error",
        156: "resource retired",
        158: "fatal GPU timeout",
    },
    Action.WORKFLOW_NVLINK5_ERR: {
        144: "NVLink 5 SAW error",
        145: "NVLink 5 RLW error",
        146: "NVLink 5 TLW error",
        147: "NVLink 5 TREX error",
        148: "NVLink 5 NVLPW control error",
        149: "NVLink 5 network interface error",
        150: "NVLink 5 MSE error",
    },
    Action.WORKFLOW_XID_45: {45: "preemptive cleanup after an earlier error"},
    Action.WORKFLOW_XID_48: {48: "double-bit ECC error"},
    Action.WORKFLOW_NVLINK_ERR: {74: "NVLink error"},
    Action.CHECK_MECHANICALS: {54: "auxiliary power is not connected"},
    Action.UPDATE_SWFW: {78: "a vGPU could not start"},
    Action.RESTART_BM: {79: "GPU has fallen off the bus"},
    Action.RESTART_VM: {151: "key rotation error"},
    Action.XID_154: {154: "GPU recovery action changed"},
    Action.CHECK_UVM: {159: "CHI non-data error"},
    Action.CONTACT_SUPPORT: {142: "NVENC3 error"},
    Action.NONE_GIVEN: {
        162: "power smoothing engaged again",
        163: "power smoothing disengaged",
        164: "power smoothing near the end of its life",
        165: "power smoothing at the end of its life",
        166: "NVLink traffic before encryption was set up",
        167: "fatal PCIe timeout",
        168: "memory capacity reduced because of errors in the protected region",
        169: "SEC2 micro-controller halt",
        170: "NVLink interrupt in confidential computing",
        171: "uncorrected DRAM error",
        172: "uncorrected SRAM error",
    },
}

LAST_XID = 172
"""The highest Xid that the catalogue has."""

_KNOWN_XIDS = {xid: Xid(action, words) for action, known in _XIDS_BY_ACTION.items() for xid, words in known.items()}

XIDS: Mapping[int, Xid] = {xid: _KNOWN_XIDS.get(xid, Xid(Action.CONTACT_SUPPORT)) for xid in range(1, LAST_XID + 1)}
"""The catalogue. What it does not name is unused, and a case for NVIDIA's support should it come all the same."""


def action_of(xid: int) -> Action:
    """NVIDIA's immediate action; `Action.NONE_GIVEN` for an Xid that is not in the catalogue."""
    return XIDS[xid].action if xid in XIDS else Action.NONE_GIVEN


def describe(xid: int) -> str:
    """An Xid in words: ``Xid 79 (GPU has fallen off the bus)``."""
    words = XIDS[xid].words if xid in XIDS else ""
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"

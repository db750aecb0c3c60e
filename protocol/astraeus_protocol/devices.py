"""What devices say, as a report carries it: GPUs, RDMA rails, NCCL's RAS. Ages and unknowns as in ``report``."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, omit_defaults=True, gc=False):
    """One GPU of a worker."""

    index: int
    """Slurm's index on the node, which is the driver's minor number."""
    uuid: str = ""
    busy: float | None = None
    """Percent, the highest sample since the report before."""
    idle_s: float | None = None
    """Since it was last busy (5 % or more), or since the watch began if it never was."""
    ever_busy: bool = False
    """It was busy at some time in this attempt."""
    looked_s: float = 0
    """Since it was last looked at: ``idle_s`` beyond that is not known to be idle."""
    mig: str = ""
    """UUID of the instance that the worker has of it; "" where it has the whole."""
    sm_mhz: float | None = None
    """SM clock at the last look."""
    sm_max_mhz: float | None = None
    reasons: int | None = None
    """Why its clock is held, at the last look: bits of NVML's nvmlClocksEventReasons."""
    held_s: dict[str, float] = {}
    """Seconds in this attempt for which its clock was held, by NVML's reason (sw_power_cap, sw_thermal, hw_thermal,
    hw_power_brake, sync_boost), of those reasons that the driver counts time of."""
    temp_c: float | None = None
    slowdown_c: float | None = None
    """The temperature at which the hardware slows down."""
    power_w: float | None = None
    limit_w: float | None = None
    """The limit that is enforced."""
    power_usual_w: float | None = None
    """Median of its power while its worker progressed in this attempt; None before 20 samples."""
    busy_before: float | None = None
    """At the look before the last, as long as the two are consecutive."""
    power_before_w: float | None = None
    errors: dict[str, int] = {}
    """What grew in this attempt, by how much: ecc_corrected, ecc_uncorrected, remapped_rows; and 1 for what holds now:
    remap_pending, remap_failed. Nothing that is zero."""
    xids: list[int] = []
    """Xid events of this attempt, oldest first, 16 at most."""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks_down: list[int] = []
    """Links that are not active, of a GPU of which others are."""
    pids: list[int] | None = None
    """Processes that have a context on it, in the node's PID namespace; None: not known."""
    unknown: dict[str, str] = {}
    """Name of a reading to why the driver does not tell it."""


class Rail(msgspec.Struct, omit_defaults=True, gc=False):
    """One RDMA port of the node: /sys/class/infiniband/DEVICE/ports/PORT. Never told by a network interface's state:
    cutting IP does not cut RDMA."""

    device: str
    port: int = 1
    layer: str = ""
    """link_layer: InfiniBand, Ethernet."""
    rate_gb: float | None = None
    """Gb/s."""
    width: int | None = None
    """Lanes: the 4 of "4X"."""
    speed: str = ""
    """The rate's name: EDR, HDR, NDR."""
    state: str = ""
    """ACTIVE, DOWN, INIT, ARMED; GONE: the node had it when the job began; "" unknown."""
    phys_state: str = ""
    """LinkUp, Polling, Disabled; "" unknown."""
    compute: bool = False
    """It carries the training's data: by the site's settings, else by GPUs' affinity, else by the commonest class."""
    kind: str = ""
    """Its class, the same for rails that are to be compared: model of the adapter and link layer."""
    errors: dict[str, int] = {}
    """Counters that grew during the job, by how much; nothing that is zero."""
    errors_s: float | None = None
    """Since one of them was last seen to grow; None: none did."""
    flaps: int = 0
    """How often it went down and came back during the job."""
    down_s: float | None = None
    """Since it was last seen up in this job; 0 while it is; None: it never was, or that is not known."""
    looked_s: float = 0
    """Since it was last read."""
    peer: str = ""
    """What is at its other end, where it can be told: SWITCH/PORT."""
    peer_wanted: str = ""
    """What the site's topology file says should be there."""


class RasRank(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A rank of a communicator, as NCCL RAS names it."""

    rank: int
    """In its communicator."""
    host: str = ""
    """Address that its process made its first connection from; "" where it was not told."""
    pid: int = 0
    """As the process sees itself: in its own PID namespace. 0: it was not told."""
    why: str = ""
    """Of one that is missing: missing (nothing came from it), dead (for a minute and more)."""
    s: float = 0
    """Since the first of the looks that told so without a break, seconds."""
    looks: int = 0


class RasGroup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Ranks of a communicator that have launched the same operations."""

    n: int
    counts: dict[str, int] = {}
    """By kind, AllReduce and its like; "" for all kinds together, which is what 2.24 tells. Nothing that is zero."""
    ranks: list[RasRank] = []
    """32 at most; of a text reply only those that it names."""


class RasComm(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A communicator of which something is odd."""

    id: str
    size: int
    missing: list[RasRank] = []
    """32 at most."""
    missing_n: int = 0
    groups: list[RasGroup] = []
    """The fullest first, 8 at most."""
    states: dict[str, int] = {}
    """RUNNING, INIT, FINALIZE, ABORT, NOCOMM, to how many ranks are in it."""
    errors: dict[str, int] = {}
    """ncclResult_t by number, or what a text reply calls it, to how many ranks report it."""
    still_s: float = 0
    """For how long its operation counts have stood still, over all looks that found them so."""
    looks: int = 0
    """How many looks found them so."""


class Ras(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What NCCL RAS says of a step's communicators: asked only on suspicion, of one node or two."""

    s: float = 0
    """Since it was said, seconds."""
    version: str = ""
    """Of NCCL."""
    text: bool = False
    """It was asked in text: of those that are well it names nobody."""
    of: int = 0
    """How many communicators it told of."""
    comms: list[RasComm] = []
    """Those of which something is odd, 16 at most."""
    unknown: str = ""
    """Why nothing is known: it could not be asked, or its answer tells nothing. Never a sign of a stall."""

"""Real reports that a naive version gets wrong, and the cases that hold them: a table of docs/scorecard.md."""
# ruff: noqa: E501 - sentences of a page

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Posted:
    """A report. ``where``: the cases that hold it, or why a recording can't, and what tests it instead."""

    number: int
    what: str
    source: str
    where: str


LINES = "the log's lines themselves: `tests/unit/monitor/test_nccl_log.py`"
SLURM = "Slurm's own text, before any report: "

POSTED = (
    Posted(1, "watchdog lines without SeqNum", "open-mmlab/mmpretrain#1837", f"122, 125, `watchdog-of-*`; {LINES}"),
    Posted(2, "words glued to a progress bar, seven hours late", "pytorch/pytorch#118369", f"121; {LINES}"),
    Posted(4, "the watchdog speaks and the process lives on", "pytorch/pytorch#97191", "122"),
    Posted(5, "ranks in different collectives", "NVIDIA-NeMo/Speech#13562", "132 (another group), 170 to 173; words with "
           "different numbers name nobody: 122"),
    Posted(7, "look-alike: process groups that were not destroyed", "pytorch/pytorch#126275", "128"),
    Posted(9, "look-alike: TCPStore's noise at the end", "xorbitsai/inference#4421", "129"),
    Posted(10, "training done, exit hangs", "modelscope/ms-swift#7992", "23, `finished-of-*`"),
    Posted(11, "relaunched in the same log", "tianweiy/CenterPoint#224", "130, 67"),
    Posted(12, "RAS says OK while all hang", "NVIDIA/nccl#1730", "122 (RAS adds nothing), 153"),
    Posted(15, "RAS in text: stopped, then dead", "NCCL user guide, ras.rst", "151, 155, `ras-missing-of-*`; its text: "
           "`tests/unit/monitor`"),
    Posted(16, "RAS in JSON; idle is frozen, too", "NCCL user guide, ras.rst", "152, 154; its JSON: `tests/unit/monitor`"),
    Posted(17, "the question hurts the job", "NVIDIA/nccl#1669", "when it is asked, not what is judged: unit tests of "
           "`judging/ask_ras.py` and of the monitor's source"),
    Posted(20, "MIG: utilisation not available at full load", "nvidia_gpu_exporter, h100-mig", "68"),
    Posted(21, "software power cap: normal when hot, bad when cold", "mlfoundations/open_clip#703", "191 (A), 183 and "
           "`capped-of-*` (B)"),
    Posted(24, "the monitor's own command hangs", "leptonai/gpud, Xid 119", "164, 165, 68"),
    Posted(25, "row remap and ECC are no stall", "leptonai/gpud#80", "190"),
    Posted(26, "launch failed, requeued, held", "burrmill/burrmill#15", SLURM + "a job that is not RUNNING is never "
           "stopped (74; unit tests of `may_restart`)"),
    Posted(27, "a requeue drains 32 nodes", "facebookincubator/submitit#1780", "what is done, not what is judged: unit "
           "tests of `may_restart` (a rank in D, nodes that still complete)"),
    Posted(28, "same id, log overwritten after a requeue", "rwth-i6/sisyphus#201", "17; truncation: the monitor's tests"),
    Posted(29, "SPANK plugins that fail to load", "NVIDIA/pyxis#25", "deployment, no verdict: `spank/` and cluster tests"),
    Posted(31, "host lists", "futureverse/parallelly#140", SLURM + "unit tests of host lists"),
    Posted(32, "fields that break delimiters", "eth-cscs/firecrest-v2#148", SLURM + "unit tests of `slurm/`"),
    Posted(34, "StdOut is not the log", "rwth-i6/sisyphus#251", "51, 83 to 87; which file it is: the monitor's tests"),
    Posted(35, "CR, NULs, sparse files", "allenai/allennlp#599", "bytes before any report: the monitor's tests of output"),
    Posted(36, "block-buffered output", "lyulyul/shine-cluster#57", "65, `evaluates-of-*`"),
    Posted(37, "healthy rails with scary values", "leptonai/gpud, infiniband", "sysfs, not in a recording of ours: unit "
           "tests of `rules/rails.py` and of the source rail"),
    Posted(39, "spellings of rates and counters", "openucx/ucx#6553", "as 37"),
    Posted(41, "full rate and slow all the same", "NVIDIA/nccl-tests#106", "needs a test of pairs, which Astraeus does not "
           "run: nothing is said"),
    Posted(42, "the wrong node is blamed", "marin-community/marin#7869", "20, 122: who is named by others' errors is not "
           "guilty by that"),
    Posted(43, "exposition syntax", "prometheus/prometheus#1469", "text before any report: the monitor's tests of metrics"),
    Posted(45, "NaN, a gap, a reset", "prometheus/prometheus#11433", "82; values: the monitor's tests of metrics"),
    Posted(46, "flat because dead, idle or cached", "banzaicloud/spark-metrics#84", "28, 73, 82, `metric-of-*`. Idle or "
           "stuck can't be told by a flat metric: who names one asks for that verdict"),
    Posted(48, "a stopped rank, survivors spin", "ml-explore/mlx#4278", "02, 117; real: 203, 204, 218, 231"),
    Posted(50, "all liveness green", "jundot/omlx#3040", "28, 29, 152"),
    Posted(52, "Gloo names no rank", "pytorch/gloo#511", "123"),
    Posted(54, "state D, and /proc that blocks", "aws/efs-utils#374", "06, 25 to 27, 79, 80, 161, `storage-of-*`, "
           "`all-on-storage-of-*`"),
    Posted(56, "rank 0 tokenises, watchdogs speak", "hiyouga/LlamaFactory#2424", "121, 131, 180"),
    Posted(57, "vLLM's line of a minute", "vllm-project/vllm-ascend#9287", "132"),
    Posted(59, "first step, evaluation, two stalls of one process", "intelligent-machine-learning/dlrover#1727", "16, 76, "
           "78, 133"),
    Posted(60, "a checkpoint longer than the timeout", "meta-pytorch/torchtune#2093", "53, 54, 135, `saves-of-*`"),
    Posted(62, "suspended by Slurm", "rivosinc/prometheus-slurm-exporter", "59 to 62, 21, `suspended-of-*`"),
    Posted(64, "a straggler that step time does not show", "traceopt-ai/traceml#252", "195, 196"),
    Posted(65, "a debugger, a manual pause", "torch.distributed.breakpoint", "66, 124, 166, `debugged-of-*`; real: 201"),
)

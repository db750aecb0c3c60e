"""The kept list: words with which trainings end, the noise with which programs exit, and what is an error.

One table, each row with the program that writes it and a line as it was seen. A row that is missing costs a
finished run one more attempt; a wrong one costs a hung run its restart. So words that also stand at the end of an
epoch, a fold or a phase are not in it.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

END, EXIT, GROUP, NOISE, ERROR, OTHER = "end", "exit", "group", "noise", "error", "other"


class Row(msgspec.Struct, frozen=True):
    """``kind``: ``end`` the main part is over; ``exit`` a process leaves; ``group`` it leaves without having
    destroyed its process group; ``noise`` says nothing; ``error``."""

    kind: str
    pattern: str
    source: str
    seen: str
    start: bool = False
    """Only at a message's beginning, behind time, level and logger."""
    plain: bool = False
    """People's own words, in any case: only at a message's beginning, in a short line without a word that tells
    of a part of the run."""


_TRAINING = r"(?:pre-?training|fine-?tuning|training)"
TABLE: tuple[Row, ...] = (
    # The main part is over.
    Row(END, r"`Trainer\.fit` stopped: `max_(?:epochs|steps)=\d+` reached", "PyTorch Lightning",
        "Epoch 199: 100%|███| 45/45 [01:32<00:00,  0.49it/s]`Trainer.fit` stopped: `max_epochs=200` reached."),
    Row(END, r"\{'train_runtime': ", "Transformers, Trainer",
        "{'train_runtime': 331.7213, 'train_samples_per_second': 0.099, 'train_loss': 13.37, 'epoch': 3.0}"),
    Row(END, r"Training completed\. Do not forget to share your model", "Transformers, Trainer",
        "Training completed. Do not forget to share your model on huggingface.co/models =)"),
    Row(END, r"\*{5} train metrics \*{5}", "Transformers, examples", "***** train metrics *****"),
    Row(END, r"\[after training is done\] datetime", "Megatron-LM",
        "[after training is done] datetime: 2024-03-01 12:00:01 "),
    Row(END, r"\[exiting program (?:at|after) ", "Megatron-LM",
        "[exiting program at iteration 5000] datetime: 2024-03-01 12:00:01 "),
    Row(END, r"End time of running main: ", "ms-swift",
        "18:00:31.711 [INFO:swift] End time of running main: 2026-02-05 18:00:31.710947"),
    Row(END, r"\bdone training in [\d.]+ seconds", "fairseq",
        "2021-01-01 10:00:00 | INFO | fairseq_cli.train | done training in 1234.5 seconds"),
    Row(END, r"\d+ epochs completed in [\d.]+ hours", "Ultralytics, YOLOv5",
        "250 epochs completed in 160.723 hours."),
    Row(END, r"\bTotal training time: \d.* \(", "Detectron2, maskrcnn-benchmark",
        "[01/02 03:04:05 d2.engine.hooks]: Total training time: 0:13:21 (0:00:47 on hooks)"),
    Row(END, r"training time:? (?:\d+ days?, )?\d+:\d\d:\d\d$", "DETR, MAE, DeiT", "Training time 1:23:45",
        plain=True),
    # Words of people's own scripts and of torchtitan ("Training completed"), at the message's beginning only.
    Row(END, r"(?:the |model |distributed |all ){0,3}" + _TRAINING + r" (?:run |job |loop |process |script )?"
        r"(?:is |has |was |been |now |successfully |fully ){0,4}(?:done|completed?|finished|ended)\b",
        "torchtitan, people's scripts", "[titan] 2025-05-06 09:07:03,111 - root - INFO - Training completed",
        plain=True),
    Row(END, _TRAINING + r" is over\b", "people's scripts", "training is over", plain=True),
    Row(END, r"(?:finished|done|completed)(?: with)?(?: the)? " + _TRAINING + r"\b", "people's scripts",
        "rank 0: Finished training!", plain=True),
    Row(END, r"end of (?:the )?(?:training|main)\b", "people's scripts", "=== End of training ===", plain=True),
    # A process leaves, for whatever reason.
    Row(EXIT, r"wandb: Find logs at", "Weights & Biases",
        "wandb: Find logs at: ./wandb/run-20250624_001401-4z2erlbt/logs"),
    Row(EXIT, r"worker group successfully finished\.", "torchrun",
        "INFO:torch.distributed.elastic.agent.server.api:[default] worker group successfully finished. "
        "Waiting 300 seconds for other agents to finish."),
    Row(GROUP, r"WARNING: (?:destroy_process_group\(\) was not called before program exit"
        r"|process group has NOT been destroyed before)", "PyTorch 2.4 and later",
        "[rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was "
        "not called before program exit, which can leak resources. (function operator())"),
    # Noise of an exit.
    Row(NOISE, r"\W*$", "blank lines and rules", "==========", start=True),
    Row(NOISE, r"WARNING: NCCL communicator hasn't been destroyed", "PyTorch 2.6 and later",
        "[rank1]:[W825 13:09:39.9 ProcessGroupNCCL.cpp:1540] WARNING: NCCL communicator hasn't been destroyed. This "
        "may cause memory leaks."),
    Row(NOISE, r"Failed to check the \"should dump\" flag on TCPStore|exception dump flag from the global store"
        r"|\[c10d\] (?:sendBytes|recvValue)\S* failed on SocketImpl|TCPStore server has shut down too early",
        "PyTorch, once rank 0 has left",
        "[rank1]:[W1229 22:06:38.558655037 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67)"),
    Row(NOISE, r"Exception raised from (?:sendBytes|recvBytes)|frame #\d+: ", "PyTorch, once rank 0 has left",
        "frame #5: c10d::ProcessGroupNCCL::heartbeatMonitor() + 0x379 (0x7f0000000000)", start=True),
    Row(NOISE, r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds|ProcessGroupNCCL watchdog hang"
        r"|main process destroyed cuda before watchdog loop exited", "PyTorch, when the exit hangs",
        "[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99 Rank 4] ProcessGroupNCCL's "
        "watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."),
    Row(NOISE, r"ProcessGroupNCCL destructor entered|Destroy complete\.|watchdog thread joined"
        r"|Local worker group finished \(SUCCEEDED\)", "PyTorch",
        "[rank0]:[I825 13:09:39.9 ProcessGroupNCCL.cpp:1300] [PG ID 0 PG GUID 0 Rank 0] Destroy complete."),
    Row(NOISE, r"Process group destroyed|Done waiting for other agents", "torchtitan, torchrun",
        "[titan] 2025-05-06 09:07:04,000 - root - INFO - Process group destroyed.", start=True),
    Row(NOISE, r"NCCL INFO (?:comm .* (?:Destroy|Abort) COMPLETE|\[Service thread\] Connection closed)",
        "NCCL", "c1:71:90 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 busId 1000 - Destroy COMPLETE"),
    Row(NOISE, r"resource_tracker: There appear to be \d+ leaked|warnings\.warn\('resource_tracker"
        r"|Producer process has been terminated before all shared CUDA tensors", "Python, PyTorch",
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear "
        "to be 8 leaked semaphore objects to clean up at shutdown"),
    Row(NOISE, r"Exception ignored (?:in|on|while)\b", "Python", "Exception ignored in atexit callback: <function f>",
        start=True),
    Row(NOISE, r"\bwandb: (?!Tracking run|Syncing run|Run data is saved|Currently logged in)",
        "Weights & Biases", "wandb: Synced 5 W&B file(s), 0 media file(s)"),
    Row(NOISE, r"View (?:run|experiment|project) .*at: http", "MLflow, Weights & Biases",
        "🏃 View run able-ant-1 at: http://mlflow:5000/#/experiments/1/runs/9"),
    Row(NOISE, r"Process \d+ exits successfully", "DeepSpeed's launcher",
        "[2023-05-05 10:00:00,000] [INFO] [launch.py:347:main] Process 3141 exits successfully."),
    Row(NOISE, r"\b100%\|", "tqdm, a bar at its end", "100%|██████████| 60/60 [06:04<00:00,  6.07s/it]"),
    Row(NOISE, r"(?:(?:train|eval)_\w+|epoch|total_flos) +=", "Transformers, examples",
        "  train_samples_per_second =      0.099", start=True),
    Row(NOISE, r"(?:Saving model checkpoint to|[Cc]onfiguration saved in|Model weights saved in"
        r"|tokens file saved in|tokenizer config file saved in|chat template saved in) ", "Transformers",
        "[INFO|trainer.py:2889] 2024-02-16 02:21:27,900 >> Saving model checkpoint to out"),
    Row(NOISE, r"last_model_checkpoint: |best_model_checkpoint: |images_dir: ", "ms-swift",
        "[INFO:swift] last_model_checkpoint: /data/output/v0/checkpoint-93"),
    Row(NOISE, r"Optimizer stripped from |Results saved to ", "Ultralytics, YOLOv5",
        "Optimizer stripped from runs/train/exp6/weights/last.pt, 14.4MB", start=True),
    # Errors: who leaves after one has failed.
    Row(ERROR, r"Traceback \(most recent call last\)|ChildFailedError|out of memory|terminate called"
        r"|Segmentation fault|core dumped|\bBus error", "Python, the C library", "Segmentation fault (core dumped)"),
    Row(ERROR, r"[\w.]*(?:Error|Exception|Interrupt)\b|Aborted|Killed", "Python, a shell",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970", start=True),
    Row(ERROR, r"Watchdog caught collective operation timeout|watchdog thread terminated with exception", "PyTorch",
        "[rank3]:[E909 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(…)"),
    Row(ERROR, r"(?:srun|slurmstepd): error", "Slurm", "srun: error: c1: task 3: Exited with exit code 1"),
)
"""The first row that fits decides."""

_VETO = re.compile(r"\b(?:epoch|fold|stage|phase|trial|round|step|iteration|batch|sav(?:e|ed|ing)|start(?:s|ed|ing)?"
                   r"|next|continu\w*|eval\w*|validat\w*|test\w*|resum\w*|not|fail\w*|before|if|when|until)\b"
                   r"|%|\d ?/ ?\d", re.I)
"""Where it stands in a line, words at a message's beginning are not the last ones."""
_LABEL = re.compile(r" *\d{1,6}: |\[\d+,\d+\]<std(?:out|err)>: ?|\[rank ?\d{1,6}\]: ?"
                    r"|\([^()]{0,100}pid=[^()]{0,100}\) ?", re.I)
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SUCCESS)"
_PREFIX = re.compile(
    r"\s+|\d{1,6}:(?=\s)|rank \d{1,6}:?(?=\s)|\d{1,8} (?=[\w./-]{1,100}\.py:\d)|\[[^\]]{0,120}\]:?"
    r"|\([^()]{0,100}pid=[^()]{0,100}\)"
    r"|\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?=[\s:|,\]-])"
    r"|\d\d/\d\d/\d{4}(?=\s)|\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?=[\s:|,\]-])"
    rf"|{_LEVEL}:[\w.]{{0,100}}:|{_LEVEL}\b:?|[IWEF]\d{{4}}(?=\s)|[\w./-]{{1,100}}\.py:\d+\]?:?"
    r"|[A-Za-z_][\w.:<>]{0,100}(?= [-|] )|[-|:>*#=~]+(?=\s|$)", re.I)
MAX_PREFIXES, MAX_PLAIN = 24, 120


@cache
def rows() -> tuple[tuple[Row, re.Pattern[str]], ...]:
    """The table with its patterns, made at the first call: 0.3 MiB and 10 ms, and most jobs never fall quiet."""
    return tuple((row, re.compile(row.pattern, re.I if row.plain else 0)) for row in TABLE)


def said(line: str) -> tuple[str, str]:
    """(the line without what srun or a launcher puts before it, its message without time, level and logger)."""
    at = 0
    while found := _LABEL.match(line, at):
        at = found.end()
    label, at = line[at:], 0
    for _ in range(MAX_PREFIXES):
        found = _PREFIX.match(label, at)
        if not found or found.end() == at:
            break
        at = found.end()
    return label, label[at:].rstrip(" =*#-!")


def kind_of(label: str, message: str) -> str:
    """The kind of a line, of which ``said`` told the two."""
    for row, pattern in rows():
        if row.plain:
            if len(message) <= MAX_PLAIN and pattern.match(message) and not _VETO.search(label):
                return row.kind
        elif pattern.match(message) if row.start else pattern.search(label):
            return row.kind
    return OTHER

"""Last words: the kept list, real ends of logs, what they look like in the middle of a run."""

from __future__ import annotations

import time

import pytest
from astraeus_monitor.sources.finished import GOES_ON, ONLY_NOISE, OVER, Verdict, classify, lines_of
from astraeus_monitor.sources.last_words import TABLE, kind_of, said
from astraeus_monitor.sources.words import Words

GROUP = ("[rank{}]:[W205 18:00:34.953145631 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was "
         "not called before program exit, which can leak resources. (function operator())")
STEP = "step 17 loss 2.31"


def verdict(*lines: str, ranks: int = 1, whole: bool = True) -> Verdict:
    return classify("\n".join(lines).encode(), whole=whole, ranks=ranks)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.kind}-{row.source}-{row.seen[:20]}")
def test_each_row_fits_the_line_that_it_was_made_from(row: object) -> None:
    assert kind_of(*said(row.seen)) == row.kind  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", [
    "0: Training done", " 12: Training done.", "[1,0]<stdout>:Training done",
    "[2024-01-01 10:00:00,123][__main__][INFO] - Training finished.",
    "2024-01-01 10:00:00.000 | INFO     | __main__:main:42 - Training done in 12 s",
    "INFO:root:Training complete!", "I0205 18:00:31.710947 1234 train.py:12] Done training",
    "(RayTrainWorker pid=120176, ip=10.0.0.1) Training is complete", "rank 3: Training finished",
    "\x1b[1;32mTraining done\x1b[0m", "==== Training finished ====", "Model training has been completed successfully",
    "5%|▌  | 1/20\r100%|██| 20/20 [00:05<00:00]`Trainer.fit` stopped: `max_steps=20` reached.",
    "Training done",
])
def test_words_of_an_end(line: str) -> None:
    assert verdict(STEP, line).what == OVER


@pytest.mark.parametrize("line", [
    STEP, "Epoch 3: training done", "Training epoch 3 finished", "epoch 3 finished", "training completed 50%",
    "Training complete. Train files: 455 Test files: 0", "Training completed! Saving model to out",
    "fold 2 - Training finished", "Training done, starting evaluation", "Training completed steps: 500/10000",
    "when training is done the model is evaluated", "rank 0 done after 20 steps", "Finished training of fold 1",
    "100%|██████████| 60/60 [06:04<00:00,  6.07s/it]", "", "wandb: Synced 5 W&B file(s)",
])
def test_words_of_a_part_are_none(line: str) -> None:
    assert verdict(STEP, line) == Verdict(GOES_ON)


def test_the_end_as_it_was_seen_with_a_hung_exit() -> None:
    """End of main, the warnings of six ranks, and ten minutes later a watchdog that speaks of the exit."""
    end = "18:00:31.711 [INFO:swift] End time of running main: 2026-02-05 18:00:31.710947"
    stuck = ("[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(GROUP) Rank 4] "
             "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring "
             "enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang")
    lines = [STEP, end, *(GROUP.format(rank) for rank in (0, 2, 3, 5, 1, 4)), stuck]
    assert verdict(*lines, ranks=64) == Verdict(OVER, end)
    assert verdict(*lines, STEP, ranks=64) == Verdict(GOES_ON)


def test_a_trainer_s_end_with_its_progress_bar_and_its_logger() -> None:
    runtime = "{'train_runtime': 331.7213, 'train_samples_per_second': 0.099, 'train_loss': 13.37, 'epoch': 3.0}"
    lines = [runtime + "  ", "67%|██ | 2/3\r100%|███| 3/3 [05:31<00:00, 110.55s/it]", "wandb: ", "wandb: Run history:",
             "wandb: train/loss █▁", "wandb: \U0001f680 View run a-1 at: https://wandb.ai/x",
             "wandb: Find logs at: ./wandb/run-1/logs", ""]
    assert verdict(*lines[:1], *lines[2:]) == Verdict(OVER, runtime)
    assert verdict(*lines).what == OVER, "a logger that closes after the bar"
    assert verdict(runtime, "***** Running Evaluation *****").what == GOES_ON


def test_a_process_group_is_warned_of_by_one_rank_that_left_early_too() -> None:
    for ranks, needed in ((1, 1), (2, 2), (8, 5), (512, 8)):
        lines = [STEP, *(GROUP.format(rank) for rank in range(needed - 1))]
        assert verdict(*lines, ranks=ranks).what == GOES_ON, ranks
        assert verdict(*lines, GROUP.format(needed), ranks=ranks).what == OVER, ranks
        again = verdict(*lines, GROUP.format(0), GROUP.format(0), ranks=ranks).what
        assert again == (OVER if ranks == 1 else GOES_ON), "a rank counts once"


@pytest.mark.parametrize("error", [
    "Traceback (most recent call last):", "0: RuntimeError: CUDA error: an illegal memory access",
    "torch.OutOfMemoryError: CUDA out of memory", "Segmentation fault (core dumped)", "srun: error: c1: task 3: Killed",
    "[rank3]:[E909 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
])
def test_what_leaves_after_an_error_has_not_finished(error: str) -> None:
    logger = "wandb: Find logs at: ./wandb/run-1/logs"
    assert verdict(STEP, error, GROUP.format(0), ranks=1).what == GOES_ON
    assert verdict(STEP, error, "  File \"train.py\", line 3, in <module>", logger).what == GOES_ON
    assert verdict(STEP, "Training done", error).what == GOES_ON
    assert verdict(STEP, logger).what == OVER
    assert verdict(STEP, error, STEP, "Training done").what == OVER, "it was caught, and the training went on"


def test_an_exception_that_python_ignores_at_exit_is_noise() -> None:
    block = ["Exception ignored in: <function Loader.__del__ at 0x7f>", "Traceback (most recent call last):",
             '  File "loader.py", line 9, in __del__', "    self.close()", "    ^^^^^^^^^^^^",
             "AttributeError: 'NoneType' object has no attribute 'close'"]
    assert verdict(STEP, "Training done", *block) == Verdict(OVER, "Training done")
    assert verdict(STEP, "Training done", *block, STEP).what == GOES_ON
    assert verdict(STEP, "Training done", *(f"3: {line}" for line in block)).what == OVER


def test_a_piece_of_a_file() -> None:
    noise = [GROUP.format(0)] * 9
    assert verdict("ng done", *noise, ranks=64, whole=False) == Verdict(ONLY_NOISE), "what is cut is no line"
    assert verdict("x", "Training done", *noise, whole=False, ranks=64).what == OVER
    assert verdict(*noise, ranks=64).what == GOES_ON, "a whole file of noise"
    assert classify(b"x" * 8192, whole=False, ranks=1).what == ONLY_NOISE, "a piece of one line says nothing"
    assert classify(b"\0" * 4096 + b"step 1\n\0\0Training done", whole=True, ranks=1) == Verdict(OVER, "Training done")
    assert classify(b"step 1\r\nTraining done\r\n", whole=True, ranks=1).what == OVER
    assert classify(b"", whole=True, ranks=1).what == GOES_ON


def test_a_line_is_short_and_printable() -> None:
    line = verdict(STEP, "{'train_runtime': " + "é\x07\x1b[31m\u202e" * 300).line
    assert len(line) <= 200
    assert line.isprintable()
    assert lines_of(b"\x1b]0;title\x07Training done\x1b[K", whole=True) == ["Training done"]


@pytest.mark.parametrize("evil", [
    b"[rank0]:" * 9000, b"wandb: View run " * 5000, b"[" * 66000, b"1:" * 40000, b"(" * 66000, b"training " * 9000,
    b"\n" * 66000, (b"NCCL INFO comm " * 200 + b"\n") * 30, (b"training done " * 100 + b"\n") * 60,
    (b"2024-01-01 " * 180 + b"\n") * 40, b"\x1b[" * 33000, b"\xff" * 66000,
], ids=lambda evil: repr(evil[:12]))
def test_no_text_takes_long(evil: bytes) -> None:
    began = time.process_time()
    classify(evil[-65536:], whole=False, ranks=8)
    assert time.process_time() - began < 1


class TestWords:
    def test_read_once_after_it_fell_quiet(self) -> None:
        words = Words()
        assert not words.due(100, None, 114)
        assert words.due(100, None, 115)
        words.begin(100, 115)
        assert not words.due(100, None, 116), "it is being read"
        words.see(GOES_ON, "", "")
        assert not words.due(100, None, 9000)
        assert words.due(9000, None, 9015)

    def test_who_prints_each_20_s_is_not_read_each_20_s(self) -> None:
        assert not Words().due(100, 20, 159)
        assert Words().due(100, 20, 160)
        assert not Words().due(100, 40, 219, 1800)
        assert Words().due(100, 40, 220, 1800)
        assert Words().due(100, 600, 400, 86_400), "five minutes are quiet for everybody"

    def test_read_before_the_run_is_called_stalled(self) -> None:
        assert Words().due(100, 600, 115, 30)
        assert not Words().due(100, 600, 144, 90)
        assert Words().due(100, 600, 145, 90)
        assert Words().due(100, 600, 160), "patience not known here"

    def test_over_since_the_growth_that_brought_the_words(self) -> None:
        words = Words()
        words.begin(100, 115)
        words.see(OVER, "Training done", "")
        found = words.record(130)
        assert found is not None
        assert (found.line, found.s) == ("Training done", 30)
        assert words.due(146, 1, 146), "more was written: at once"
        words.begin(146, 146)
        words.see(ONLY_NOISE, "", "")
        assert words.record(160) is not None, "noise changes nothing"
        assert not words.due(150, 1, 160), "but not at each look"
        words.begin(180, 180)
        words.see(OVER, "Training done", "")
        again = words.record(190)
        assert again is not None
        assert again.s == 90, "first seen"
        words.begin(200, 220)
        words.see(GOES_ON, "", "")
        assert words.record(230) is None

    def test_a_file_that_can_t_be_read_is_tried_again_more_and_more_seldom(self) -> None:
        words, waits, now = Words(), [], 100.0
        for _ in range(6):
            words.begin(50, now)
            words.see("", "", "Permission denied")
            waits.append(words.not_before - now)
            now = words.not_before
            assert words.due(50, None, now)
        assert waits == [60, 120, 240, 480, 600, 600]
        assert words.fault == "Permission denied"
        words.begin(50, now)
        words.see(GOES_ON, "", "")
        assert (words.fault, words.due(50, None, now + 999)) == ("", False)

    def test_kept_over_a_kill(self) -> None:
        words, again = Words(), Words()
        words.begin(100, 115)
        words.see(OVER, "Training done", "")
        again.load(words.save())
        assert again.record(120) == words.record(120)
        assert not again.due(100, None, 200)

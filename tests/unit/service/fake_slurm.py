#!/usr/bin/env python3
"""A small Slurm for tests: squeue, scontrol, scancel, sacct, sacctmgr and sinfo over one state.

Answers in the shapes of real releases; a look at a job (squeue) is what makes time pass: COMPLETING turns to
PENDING, PENDING to RUNNING after some looks. In a test it runs in the test's own process; as a script, named
after the command by a link, it keeps its state in $FAKE_SLURM.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FINISHED = "Job has already finished for job {}"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
FIELDS = {
    "JobID": "id", "ArrayJobID": "array_job", "ArrayTaskID": "array_task", "HetJobID": "het",
    "HetJobOffset": "het_offset", "State": "state", "Reason": "reason", "UserName": "user", "UserID": "uid",
    "Account": "account", "Partition": "partition", "QOS": "qos", "RestartCnt": "restarts",
    "Requeue": "requeue", "BatchFlag": "batch", "StartTime": "start", "EndTime": "end", "TimeUsed": "used",
    "TimeLimit": "limit", "NodeList": "nodes", "NumNodes": "node_count", "PriorityLong": "priority",
    "exit_code": "exit", "Name": "name", "STDOUT": "stdout", "Comment": "comment",
    "admin_comment": "admin_comment",
}
LETTERS = {"A": "id", "F": "array_job", "K": "array_task", "T": "state", "u": "user", "a": "account",
           "P": "partition", "q": "qos", "N": "nodes", "j": "name", "n": "required", "x": "excluded", "f": "features",
           "v": "reservation"}


def job(number: int, **values: Any) -> dict[str, Any]:
    """A running batch job."""
    return {
        "id": number, "array_job": number, "array_task": "N/A", "het": "N/A", "het_offset": "N/A",
        "state": "RUNNING", "reason": "None", "user": "alice", "uid": 1001, "account": "research",
        "partition": "main", "qos": "normal", "restarts": 0, "requeue": 1, "batch": 1,
        "start": "2026-11-29T13:50:00", "end": "N/A", "used": "30:00", "limit": "UNLIMITED", "nodes": "c[1-4]",
        "node_count": 4, "priority": 1000, "exit": "0:0", "name": "llm", "stdout": "/home/alice/out-%j.txt",
        "comment": "", "admin_comment": "", "completing": 2, "waiting": 2, "requeued": 0, "recorded": {},
        "required": "", "excluded": "", "features": "", "reservation": "",
        "begin": "", "signals": [], "ranks_gone": False, "suspended": False, "revived": 0, "script": "CONT",
    } | values


SETTINGS = {"ClusterName": "test", "KillWait": "8 sec", "SLURM_VERSION": "24.11.5"}


def expanded(nodelist: str) -> list[str]:
    """``c4,c[1-2]``: c4 c1 c2."""
    found = []
    for name, first, last in re.findall(r"(\w+)(?:\[(\d+)-(\d+)\])?", nodelist):
        found += [f"{name}{n}" for n in range(int(first), int(last) + 1)] if first else [name]
    return found


class Failed(Exception):
    """What the command prints to stderr; its exit status is 1."""


PARTITION = {f"c{n}": "mixed" for n in range(1, 9)}


class FakeSlurm:
    """``state``: {"jobs": {id: job}, "comment_max": bytes, "away": bool, "log": [argv]}; ``clock``: seconds."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *jobs: dict[str, Any], **values: Any) -> None:
        self.state: dict[str, Any] = {
            "jobs": {str(one["id"]): one for one in jobs}, "comment_max": 65000, "away": False, "log": [],
            "at_look": {}} | values

    def job(self, number: int) -> dict[str, Any]:
        return self.state["jobs"][str(number)]

    def called(self, *words: str) -> list[list[str]]:
        """Commands that began so."""
        return [argv for argv in self.state["log"] if argv[:len(words)] == list(words)]

    def run(self, argv: list[str]) -> str:
        self.state["log"].append(argv)
        if self.state["away"]:
            raise Failed(f"{argv[0]}: error: Unable to contact slurm controller (connect failure)")
        return getattr(self, argv[0])(argv[1:])

    # Commands

    def squeue(self, args: list[str]) -> str:
        if "-j" in args:
            number = int(args[args.index("-j") + 1])
            found = [one for one in self.state["jobs"].values()
                     if number in (one["id"], one["array_job"]) or one["het"] == str(number)]
            if not found:
                raise Failed("slurm_load_jobs error: Invalid job id specified")
        else:
            states = args[args.index("-t") + 1].split(",")
            found = [one for one in self.state["jobs"].values() if one["state"] in states]
        if "tres-alloc" in args[-1]:  # no look: it is asked beside the rounds that tests count
            marks = [field.partition(":0")[2] for field in args[-1].split(",")]
            rows = ([one["id"], one.get("tres", ""), *["N/A"] * (len(marks) - 2)] for one in found)
            return "".join("".join(f"{one}{mark}" for one, mark in zip(row, marks, strict=True)) + "\n" for row in rows)
        for one in found:
            self._look(one)
        if "-O" in args:
            return "".join(self._long(one, args[args.index("-O") + 1]) + "\n" for one in found)
        return "".join(self._short(one, args[args.index("-o") + 1]) + "\n" for one in found)

    def scontrol(self, args: list[str]) -> str:
        match args:
            case ["requeue", "incomplete", number]:
                self._not_whole(number)
                return "".join(self._requeue(one) for one in self._all_of(number))
            case ["requeue", number]:
                self._not_whole(number)
                return self._requeue_ended(self._named(number))
            case ["update", target, *pairs] if target.startswith("nodename="):
                return self._update_node(target.removeprefix("nodename="), dict(pair.split("=", 1) for pair in pairs))
            case ["update", target, *pairs]:
                self._not_whole(target.removeprefix("jobid="))
                return "".join(self._update(one, pairs) for one in self._all_of(target.removeprefix("jobid=")))
            case ["show", "hostnames", nodelist]:
                return "".join(f"{node}\n" for node in expanded(nodelist))
            case ["show", "job", name]:
                one = self._named(name)
                return (f"JobId={one['id']} JobName={one['name']}\n   ReqNodeList={one['required'] or '(null)'} "
                        f"ExcNodeList={one['excluded'] or '(null)'}\n   Comment={one['comment']}\n")
            case ["show", "config"]:
                return "".join(f"{key:<23} = {value}\n" for key, value in SETTINGS.items())
        raise Failed(f"scontrol: what is {args}?")

    def scancel(self, args: list[str]) -> str:
        *flags, signal, name = args
        assert signal.startswith("--signal="), args
        assert flags in ([], ["--batch"], ["--full"]), args
        self._not_whole(name)
        one, signal = self._named(name), signal.removeprefix("--signal=")
        if one["state"] in (*ENDED, "COMPLETING", "PENDING"):
            raise Failed(f"scancel: error: Kill job error on job id {name}: Job/step already completing or completed")
        if signal in self.state.get("refused_signals", ()):
            raise Failed("scancel: error: Kill job error on job id 123: Access/permission denied")
        if signal in ("STOP", "CONT"):
            assert one["state"] != "SIGNALING", "scancel would wait for 5 s"
            one |= {"answer": "STOPPED" if signal == "STOP" else "RUNNING", "state": "SIGNALING"}
            if flags:
                one["script"] = signal
        else:
            one["ranks_gone"] = self.state.get("ranks_end", True)
            if one["script"] == "CONT":  # it runs on, to its end
                one |= {"state": "COMPLETING", "then": "FAILED" if flags else "COMPLETED"}
        one["signals"].append([*(flag.strip("-") for flag in flags), signal])
        return ""

    def sacct(self, args: list[str]) -> str:
        one = self._named(args[args.index("-j") + 1])
        if args[-1] == "State":
            return f"{one.get('accounted', one['state'])}\n"
        over = one["state"] in ENDED
        if over and not one["recorded"]:
            one["recorded"] = {"Comment": one["comment"] if self.state.get("job_comment", True) else "",
                               "AdminComment": one["admin_comment"]}
            return "Unknown||\n"  # the record comes a moment after the end
        return f"{one['end'] if over else 'Unknown'}|{one['recorded'].get('Comment', '')}\n"

    def sacctmgr(self, args: list[str]) -> str:
        if args[-1] == "format=User,AdminLevel":
            return "".join(f"{user}|{level}\n" for user, level in self.state.get("levels", {}).items())
        if "show" in args:
            user = next(a for a in args if a.startswith("name=")).removeprefix("name=")
            return self.state.get("levels", {}).get(user, "None") + "\n"
        one = self._known(int(next(a for a in args if a.startswith("jobid=")).removeprefix("jobid=")))
        for pair in args[args.index("set") + 1:]:
            key, _, value = pair.partition("=")
            one["recorded"][key] = value.replace("'", "`").replace('"', "`")
        return ""

    def node(self, name: str) -> dict[str, str]:
        """A node that tests look at."""
        if name not in PARTITION:
            raise Failed("slurm_update error: Invalid node name specified")
        return self.state.setdefault("nodes", {}).setdefault(name, {"state": "mixed", "reason": "none", "comment": ""})

    def _update_node(self, name: str, values: dict[str, str]) -> str:
        one = self.node(name)
        if (refused := self.state.get("node_refused")):
            raise Failed(refused)
        if (other := self.state.pop("node_race", None)):
            one |= other
        match values.get("state"):
            case "drain":
                one |= {"state": "draining", "reason": values["reason"]}
            case "resume":
                assert one["state"].startswith(("drain", "down")), "slurm_update error: Invalid node state specified"
                one |= {"state": "mixed", "reason": "none"}
        one["comment"] = values.get("comment", one["comment"])
        return ""

    def sinfo(self, args: list[str]) -> str:
        if "-O" in args:
            name = args[args.index("-n") + 1]
            if name not in PARTITION:
                return ""
            one = {"NodeList": name, "StateLong": self.node(name)["state"], "Reason": self.node(name)["reason"],
                   "Comment": self.node(name)["comment"] or "(null)"}
            fields = (field.split(":0") for field in args[args.index("-O") + 1].split(","))
            return "".join(one[field] + mark for field, mark in fields) + "\n"
        if args[-1] == "%N|%n|%o":
            return "".join(f"{node}|{node}|{self.state.get('addresses', {}).get(node, node)}\n" for node in PARTITION)
        if "-p" in args:
            assert args[args.index("-o") + 1] == "%R|%N|%T|%c|%m|%G|%f", args
            return "".join(f"{args[args.index('-p') + 1]}|{node}|{state}|16|64000|gpu:2|(null)\n"
                           for node, state in self.state.get("partition", PARTITION).items())
        return "".join(f"{node} {state}\n" for node, state in self.state.get("node_states", {}).items())

    # How jobs change

    def _known(self, number: int) -> dict[str, Any]:
        one = self.state["jobs"].get(str(number))
        if one is None:
            raise Failed(f"Invalid job id specified for job {number}")
        return one

    def _named(self, name: str) -> dict[str, Any]:
        """``98_7``, ``100+1``, ``123``."""
        leader, _, offset = name.partition("+")
        if offset:
            return next(one for one in self._all_of(leader) if one["het_offset"] == offset)
        array, _, task = name.partition("_")
        if not task:
            return self._known(int(name))
        return next((one for one in self.state["jobs"].values()
                     if (str(one["array_job"]), str(one["array_task"])) == (array, task)), None) or self._known(-1)

    def _all_of(self, name: str) -> list[dict[str, Any]]:
        """The job, or by its leader's id every component of a heterogeneous one."""
        return [one for one in self.state["jobs"].values() if one["het"] == name] or [self._named(name)]

    def _not_whole(self, name: str) -> None:
        """A change by an array's bare id would reach all of its elements: no test wants that."""
        one = self.state["jobs"].get(name)
        if one and one["array_task"] != "N/A" and one["array_job"] == one["id"]:
            raise AssertionError(f"{name} means the whole array")

    def _look(self, one: dict[str, Any]) -> None:
        if one["state"] == "SIGNALING":
            one["state"] = one.pop("answer") if one.pop("asked", False) else one["state"]
            one["asked"] = one["state"] == "SIGNALING"
        if one["state"] == "COMPLETING":
            one["completing"] -= 1
            if one["completing"] <= 0:
                one["state"] = one.pop("then", "PENDING")
                if one["state"] == "PENDING":
                    one |= {"reason": "BeginTime", "nodes": "", "waiting": 1000 if not one["begin"] else 2}
                else:
                    one["end"] = self.state.get("end", "2026-11-30T14:30:00")
        elif one["state"] == "PENDING" and one["priority"]:
            one["waiting"] -= 1
            if one["waiting"] <= 0:
                one |= {"state": "RUNNING", "reason": "None", "nodes": "c[1-4]", "completing": 2,
                        "start": f"2026-11-29T14:5{one['restarts']}:00"}
        if one["state"] == "STOPPED":
            now = self.clock()
            if not one["suspended"]:
                one["ran"] = one.get("ran", 0) + now - one.get("seen", now)
            one["seen"], ran = now, int(one.get("ran", 0))
            one["used"] = f"{30 + ran // 60}:{ran % 60:02}"
        # what happens at the nth look, set by a test: {"3": {"state": "SUSPENDED"}}
        one["looks"] = one.get("looks", 0) + 1
        one.update(self.state["at_look"].get(str(one["looks"]), {}))

    def _requeue(self, one: dict[str, Any]) -> str:
        if one["state"] in ENDED:
            return ""
        if not one["requeue"]:
            raise Failed(f"Requested operation is presently disabled for job {one['id']}")
        if not one["batch"]:
            raise Failed(f"Only batch jobs are accepted or processed for job {one['id']}")
        if self.state.get("requeue_does_nothing", 0) > 0:
            self.state["requeue_does_nothing"] -= 1
            return ""
        one |= {"state": "COMPLETING", "script": "CONT", "restarts": one["restarts"] + 1,
                "requeued": one["requeued"] + 1, "begin": "", "end": "N/A"}
        return ""

    def _requeue_ended(self, one: dict[str, Any]) -> str:
        if one.pop("accounted", one["state"]) not in ENDED:
            raise AssertionError("plain requeue of a job that has not ended")
        if self.state.get("requeue_does_nothing", 0) > 0:
            self.state["requeue_does_nothing"] -= 1
            return ""
        one |= {"state": "PENDING", "reason": "BeginTime", "nodes": "", "waiting": 1000, "begin": "", "end": "N/A",
                "start": "N/A", "restarts": one["restarts"] + 1, "revived": one["revived"] + 1}
        return ""

    def _update(self, one: dict[str, Any], pairs: list[str]) -> str:
        if one["state"] in (*ENDED, "COMPLETING"):
            raise Failed(FINISHED.format(one["id"]))
        values = dict(pair.split("=", 1) for pair in pairs)
        for text in (values.get("Comment", ""), values.get("AdminComment", "")):
            if len(text.encode("utf-8", "surrogateescape")) > self.state["comment_max"]:
                raise Failed(f"Pathname of a file, directory or other parameter too long for job {one['id']}")
        one["comment"] = values.get("Comment", one["comment"])
        one["admin_comment"] = values.get("AdminComment", one["admin_comment"])
        if "ExcNodeList" in values:
            if one["state"] != "PENDING" and values["ExcNodeList"] != one["excluded"]:
                raise Failed(f"Job is no longer pending execution for job {one['id']}")
            if self.state.get("refuses_nodes"):
                raise Failed(f"Invalid node name specified for job {one['id']}")
            one["excluded"] = values["ExcNodeList"]
        if "StartTime" in values:
            if one["state"] != "PENDING":
                raise Failed(f"Requested operation is presently disabled for job {one['id']}")
            sleepy = values["StartTime"] != "now" and self.state.get("scheduler_sleeps")
            one |= {"begin": values["StartTime"], "waiting": 1000 if sleepy else 2}
        return ""

    # Shapes

    @staticmethod
    def _value(one: dict[str, Any], key: str) -> str:
        value = str(one[key])
        return value or ("" if key == "nodes" else "(null)")

    def _long(self, one: dict[str, Any], wanted: str) -> str:
        text = ""
        for field in wanted.split(","):
            name, size = field.split(":", 1)
            if not size.startswith("0"):
                raise Failed("this test wants whole fields")
            text += self._value(one, FIELDS[name]) + size[1:]
        return text

    def _short(self, one: dict[str, Any], wanted: str) -> str:
        folded = one | {"excluded": ",".join(sorted(expanded(one["excluded"])))}  # sorted, unlike scontrol's
        return re.sub("%([A-Za-z])", lambda letter: self._value(folded, LETTERS[letter[1]]), wanted)


def install(folder: Path, slurm: FakeSlurm) -> Path:
    """A directory of commands whose state is in a file beside them; the file."""
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "state.json"
    state.write_text(json.dumps(slurm.state))
    for name in ("squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo"):
        command = folder / name
        command.write_text(f"#!/bin/sh\nFAKE_SLURM={state} exec {sys.executable} -S {__file__} {name} \"$@\"\n")
        command.chmod(0o755)
    return state


def main() -> int:
    """As a command."""
    path = os.environ["FAKE_SLURM"]
    argv = [os.fsencode(arg).decode("utf-8", "surrogateescape") for arg in sys.argv[1:]]
    with open(f"{path}.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        slurm = FakeSlurm()
        with open(path, encoding="utf-8") as file:
            slurm.state = json.load(file)
        try:
            sys.stdout.buffer.write(slurm.run(argv).encode("utf-8", "surrogateescape"))
            return 0
        except Failed as fault:
            print(fault, file=sys.stderr)
            return 1
        finally:
            # Whole or not at all: a controller that stops kills its commands.
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(slurm.state, file)
            os.replace(f"{path}.new", path)


if __name__ == "__main__":
    sys.exit(main())

"""Stands in for train.py: keeps its contract with the launcher, trains nothing, fails on order.

The order comes in the spec's workload options: `who` does `what` when it has made `at` steps.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from ringside_core.specs import (
    MachineFacts,
    Outcome,
    PreemptedError,
    RunRecord,
    RunSpec,
    read_surroundings,
    write_whole,
)

NOWHERE = MachineFacts(
    host="fake", cpu_model="fake", cores=1, memory_bytes=1, kernel="fake", python="3", packages={}
)


class Task:
    def __init__(self, spec: RunSpec, run_dir: Path) -> None:
        self.spec = spec
        self.run_dir = run_dir
        self.place = read_surroundings(os.environ)
        self.name = self.place.task_name
        self.run_id = os.environ["RINGSIDE_RUN_ID"]
        self.order: dict[str, Any] = {"steps": 20, "step_s": 0.04, "who": "", "at": 2, "what": ""}
        self.order |= spec.workload_options
        if self.place.task is not None:  # as TensorFlow's servers do
            _, _, port = self.place.task.address.rpartition(":")
            self.server = socket.create_server(("", int(port)))

    def progress(self, step: int, phase: str) -> None:
        file = self.run_dir / "progress" / self.name
        file.write_text(f"{time.time()} {step} {self.order['steps']} {phase} 1")

    def record(self, outcome: Outcome, role: str) -> int:
        record = RunRecord(
            spec=self.spec,
            task=self.name,
            role=role,
            is_chief=self.place.rank == 0,
            rank=self.place.rank,
            machine=NOWHERE,
            started_unix_s=time.time(),
            cores=(0,),
            outcome=outcome,
            cpu_s=time.process_time(),
            run_id=self.run_id,
        )
        write_whole(self.run_dir / "records" / f"{self.name}.json", record.to_json())
        self.progress(self.order["steps"], "finished")
        return outcome.exit_code

    def serve(self) -> int:
        if (self.order["who"], self.order["what"]) == (self.name, "come late"):
            time.sleep(0.7)
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        self.progress(0, "serving")
        if self.order["who"] == self.name:
            self.misbehave()
        stopped.wait()
        return self.record(Outcome(kind="completed"), "server")

    def train(self) -> int:
        role = "coordinator" if self.name.startswith("chief") else "replica"
        if self.order["what"] == "save when asked":
            signal.signal(signal.SIGUSR1, self.asked)
        print(f"hello from {self.name}")
        self.meet()
        try:
            for step in range(1, self.order["steps"] + 1):
                time.sleep(self.order["step_s"])
                self.progress(step, "training")
                if self.order["who"] == self.name and self.order["at"] == step:
                    print(f"{self.name} does what it was asked: {self.order['what']}")
                    self.misbehave()
        except PreemptedError as error:
            return self.record(Outcome(kind="preempted", reason=str(error)), role)
        except ValueError as error:
            outcome = Outcome(kind="failed", error_class="ValueError", reason=str(error))
            return self.record(outcome, role)
        return self.record(Outcome(kind="completed"), role)

    def asked(self, number: int, frame: object) -> None:
        raise PreemptedError("ended by the launcher")

    def meet(self) -> None:
        """Wait for all others to have started, as the first collective of a training does."""
        peers = self.spec.topology.num_processes
        while sum(1 for _ in (self.run_dir / "progress").iterdir()) < peers:
            time.sleep(0.01)

    def misbehave(self) -> None:
        what = self.order["what"]
        if what == "raise":
            raise ValueError("a bad batch")
        elif what == "be of another run":
            self.run_id = "0ther"
        elif what == "talk":
            print("blah " * 10_000 + "\n", "and on", flush=True)
            time.sleep(0.5)
        elif what == "exit 0":
            os._exit(0)
        elif what == "exit 3":
            os._exit(3)
        elif what == "sleep":
            time.sleep(600)
        elif what == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "be deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        elif what == "hide a child":
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            os._exit(3)
        elif what == "half a record":
            (self.run_dir / "records" / f"{self.name}.json").write_text('{"schema_')
            os._exit(1)
        elif what == "leave a temporary file":
            (self.run_dir / "records" / f".{self.name}.json.x1.half").write_text('{"schema_')
            os._exit(1)


def end_with_stdin() -> None:
    """The connection is gone: do as if asked to stop."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> int:
    """What train.py does, without training."""
    run_dir = Path(arguments[arguments.index("--run-dir") + 1])
    name = read_surroundings(os.environ).task_name
    log = os.open(run_dir / "logs" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if "--watch-stdin" in arguments:
        end_with_stdin()
    spec = RunSpec.from_json(Path(arguments[arguments.index("--spec") + 1]).read_text())
    task = Task(spec, run_dir)
    task.progress(0, "starting")
    serves = name.startswith("ps") or (name.startswith("worker") and spec.backend[0] == "p")
    return task.serve() if serves else task.train()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)

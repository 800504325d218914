"""An elastic data-parallel job that checkpoints and resumes: a rank that is killed, or a membership that changes.

A killed rank: the last rank kills itself as it begins step 14 of the first attempt, and torchrun starts all ranks anew.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --standalone --nproc-per-node 2 --max-restarts 2 probes/elastic.py --kill-step 14 --sleep-compute

A membership that changes, 1 -> 2 -> 1: the script plays both machines. It starts an agent of torchrun, a second one
that joins when the job has made 8 steps, and ends the second one 8 steps later, as a preempted machine ends.

    python probes/elastic.py --membership 1:2:1 --sleep-compute

Expected, of `tracekit analyze runs/elastic` and `tracekit info runs/elastic`:

* One run with 2 attempts, or with 3 of world sizes 1, 2 and 1. Each is analysed by `--attempt`.
* `--kill-step 14`: attempt 0 made steps 0 to 13 and rank 1 was killed. Attempt 1 resumes with step 10, the last
  checkpoint (`--checkpoint-every 5`): 4 steps are repeated. The time lost is split into detection and rendezvous,
  start-up (imports, process group), reload (`--reload-ms`) and repeated steps.
* `--membership 1:2:1`: the first change is no failure, the second one is: rank 1 is gone. When the launcher has waited
  for it (`keep_alive_interval` times `keep_alive_max_attempt`, here 4 s), rank 0 goes on alone.
* `--raise-step 14`: the last rank raises between two steps, once. Steps 10 to 13 are repeated here, too.
* `--slow-rank 1 --delay-ms 20`: in each attempt "Straggler: rank 1 computes ... longer than its peer".
* Steps have the job's own numbers: the count of Adam in the checkpoint tells. `--optimizer sgd` has none, so repeated
  steps are not known, and that is said. With `--tell-first-step` the script tells the probe: 4 again.

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 gives each attempt a store of its own. Without it torch 2.13 keeps the store, and
the first restart of Gloo fails: its ranks look for the sockets of the dead ones. The next one succeeds.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, training_options
from sleeping import SleepyLinear, sleep, sleep_on_host

WIDTH, BATCH, LAYERS = 64, 16, 4
SLEEP_S = 0.01
LATE_STEPS = 8  # before a change of membership
MOST_STEPS = 5000  # if nobody joins


def main() -> None:
    options = parse_options()
    if options.membership and "RANK" not in os.environ:
        sys.exit(play_machines(options))
    with job(options) as process:
        training(process, options)


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    layers = (SleepyLinear(WIDTH, SLEEP_S) if options.sleep_compute else nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    network = nn.Sequential(*layers).to(process.device)
    kind = torch.optim.SGD if options.optimizer == "sgd" else torch.optim.Adam
    optimizer = kind(network.parameters(), lr=0.001)
    checkpoint = Path(options.out) / "checkpoint.pt"
    first_step = load(checkpoint, network, optimizer, options)
    model = DistributedDataParallel(network)
    batches = torch.Generator().manual_seed(1 + process.rank)

    @tracekit.probe(path=options.out, first_step=first_step if options.tell_first_step else None)
    def train_step() -> Tensor:
        x = torch.randn(BATCH, WIDTH, generator=batches).to(process.device)
        optimizer.zero_grad()
        loss = model(sleep(x, forward_s=planted_delay_s(options, process))).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    fails = process.rank == process.world_size - 1 and is_first_attempt()
    for step in range(first_step, last_step(first_step, options)):
        if fails and step == options.kill_step:
            say(f"rank {process.rank} kills itself before step {step}")
            os.kill(os.getpid(), signal.SIGKILL)
        if fails and step == options.raise_step:
            raise ValueError(f"rank {process.rank} raises before step {step}")
        loss = train_step()
        if process.rank == 0:
            say(f"step {step} of {process.world_size} ranks: loss {loss.item():.4f}")
            if (step + 1) % options.checkpoint_every == 0:
                save(checkpoint, network, optimizer, step + 1)


def say(text: str) -> None:
    """Print `text` after the time of the wall clock in seconds.

    torchrun starts Python unbuffered: the end of a line is part of what is printed, else another rank's line may come
    between them.
    """
    print(f"{time.time():.3f} {text}\n", end="", flush=True)


def save(checkpoint: Path, network: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Write the checkpoint so that a rank killed meanwhile leaves the one before."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    written = checkpoint.with_suffix(".tmp")
    torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}, written)
    written.replace(checkpoint)


def load(checkpoint: Path, network: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> int:
    """Load the last checkpoint of this job, if there is one; return the number of steps that it has."""
    if not checkpoint.exists():
        return 0
    sleep_on_host(options.reload_ms / 1000)
    state = torch.load(checkpoint)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["steps"])


def last_step(first_step: int, options: argparse.Namespace) -> int:
    """Return with which step the training ends. A membership that is still to change may take its time."""
    if not options.membership:
        return int(options.steps)
    return MOST_STEPS if is_first_attempt() else first_step + int(options.steps)


def is_first_attempt() -> bool:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def play_machines(options: argparse.Namespace) -> int:
    """Run two agents of torchrun, the second of which comes and goes; return the exit code of the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    patience = "last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=2"
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
    agent += ["--max-restarts", "2", "--monitor-interval", "0.5", "--local-addr", "127.0.0.1"]
    agent += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", options.rdzv_id]
    agent += ["--rdzv-conf", patience]
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LOGLEVEL": "INFO"} | os.environ
    command = [*agent, *sys.argv]
    second: subprocess.Popen[str] | None = None
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        steps_of_world = {1: 0, 2: 0}
        for line in first.stdout:
            print(line, end="", flush=True)
            if " ranks: loss " not in line:
                continue
            world_size = int(line.split(" of ")[1].split()[0])
            steps_of_world[world_size] += 1
            if second is None and steps_of_world[1] == LATE_STEPS:
                say("the second machine joins")
                second = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, text=True)
            elif second is not None and second.returncode is None and steps_of_world[2] == LATE_STEPS:
                say("the second machine leaves")
                second.terminate()  # its worker, too
                second.wait()
    print(f"Job: {shlex.join(command)}")
    return first.returncode


def parse_options() -> argparse.Namespace:
    parser = training_options("An elastic job that is restarted.", out="runs/elastic", steps=24)
    parser.add_argument("--kill-step", type=int, default=-1, help="before which the last rank kills itself, once")
    parser.add_argument("--raise-step", type=int, default=-1, help="before which the last rank raises, once")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam", help="sgd has no count of its steps")
    parser.add_argument("--tell-first-step", action="store_true", help="the probe is told with which step it begins")
    parser.add_argument("--checkpoint-every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--reload-ms", type=float, default=300.0, help="by how much reading a checkpoint takes longer")
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--membership", choices=["1:2:1"], help="play two machines, of which one comes and goes")
    parser.add_argument("--rdzv-id", default="elastic", help="of the job that --membership starts")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What train.py trains with: ranks that find each other, and one step of work that ends in a collective operation."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from train_faults import Trigger


def restarts() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def meet(rank: int, size: int) -> list[str]:
    """host:port of every rank of this step: each publishes a free port of its own in the shared home."""
    key = f"{os.environ['SLURM_JOB_ID']}.{os.environ.get('SLURM_STEP_ID', 'batch')}.{restarts()}"
    folder = Path.home() / ".train" / key
    folder.mkdir(parents=True, exist_ok=True)
    address = socket.gethostbyname(socket.gethostname())
    with socket.create_server((address, 0)) as free:
        port = free.getsockname()[1]
    new = folder / f"{rank}.new"
    new.write_text(f"{address}:{port}")
    new.rename(folder / str(rank))
    places = [folder / str(other) for other in range(size)]
    while not all(place.exists() for place in places):
        time.sleep(0.05)
    return [place.read_text() for place in places]


class Torch:
    """Data parallel training of a small network over gloo. Ranks from torchrun's variables, else from srun's."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self.torch, self.dist, self.version = torch, dist, torch.__version__
        env = os.environ
        if "RANK" not in env:
            rank, size = int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"])
            host, _, port = meet(rank, size)[0].partition(":")
            env |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": host, "MASTER_PORT": port}
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.others = dist.new_group(list(range(self.size)))
        torch.manual_seed(0)
        layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
        self.network = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(*layers, torch.nn.Linear(256, 8))
        )
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-3)
        self.loaded: Any = None

    def load_in_helpers(self, trigger: Trigger) -> None:
        """Batches come from a DataLoader's worker process from here on, which the trigger may harm."""
        torch = self.torch

        class Data(torch.utils.data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return 10**9

            def __getitem__(self, index: int) -> Any:
                trigger.in_helper()
                return torch.randn(64), torch.randn(8)

        loader = torch.utils.data.DataLoader(Data(), batch_size=64, num_workers=1)
        self.loaded, self.trigger = iter(loader), trigger
        next(self.loaded)

    def batch(self) -> Any:
        if self.loaded is None:
            return self.torch.randn(64, 64), self.torch.randn(64, 8)
        self.trigger.at_helper()
        return next(self.loaded)

    def step(self, batch: Any, fault: str | None) -> float:
        data, wanted = batch
        loss = self.torch.nn.functional.mse_loss(self.network(data), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        mean = loss.detach().clone()
        if fault == "xgroup":
            self.dist.barrier(group=self.others)
        elif fault != "skip":
            self.dist.all_reduce(mean)
        return float(mean) / self.size

    def close(self) -> None:
        self.dist.destroy_process_group()


class Mlx:
    """Sums over MLX's ring: each rank holds TCP connections to its two neighbours."""

    ELEMENTS = 256 * 1024

    def __init__(self) -> None:
        import mlx.core as mx

        self.mx, self.version = mx, mx.__version__
        rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
        with tempfile.NamedTemporaryFile("w", prefix="ring-", suffix=".json", delete=False) as file:
            json.dump([[address] for address in meet(rank, size)], file)
        os.environ |= {"MLX_RANK": str(rank), "MLX_HOSTFILE": file.name}
        self.group = mx.distributed.init(strict=True, backend="ring")
        self.rank, self.size = self.group.rank(), self.group.size()
        os.unlink(file.name)

    def batch(self) -> Any:
        return self.mx.ones((self.ELEMENTS,))

    def step(self, batch: Any, fault: str | None) -> float:
        total = self.mx.distributed.all_sum(batch, group=self.group)
        self.mx.eval(total)
        return float(total[0].item())

    def close(self) -> None: ...


class Mpi:
    """Allreduces of Open MPI: shared memory within a node, TCP between nodes; who waits spins."""

    BYTES = 1 << 16

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.world = MPI, MPI.COMM_WORLD
        self.version = MPI.Get_library_version().split(",")[0]
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        self.total = bytearray(self.BYTES)

    def batch(self) -> Any:
        return bytearray(self.BYTES)

    def step(self, batch: Any, fault: str | None) -> float:
        self.world.Allreduce([batch, self.mpi.BYTE], [self.total, self.mpi.BYTE], op=self.mpi.MAX)
        return float(self.total[0])

    def close(self) -> None: ...


BACKENDS: dict[str, Any] = {"torch": Torch, "mlx": Mlx, "mpi": Mpi}

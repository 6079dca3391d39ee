"""One fit over several hosts, tried out on one machine: `python examples/many_hosts.py`.

Without arguments this starts two processes on this machine, as a cluster would start one on each host. Every process
reads its own share of the data, places it on the mesh of all devices, and calls the same `fit`. If one is lost, the
others end with an error that says so; started again, the run goes on from its checkpoint.

On real hosts `jax.distributed.initialize()` finds the others by itself (Slurm, Open MPI, Cloud TPU), or is told as
here.
"""

import argparse
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np

UNITS = 1001


def share(process: int, processes: int) -> np.ndarray:
    """What one host holds; a real one would read its own files. Hosts need not hold equally much."""
    rng = np.random.default_rng(0)
    everything = rng.normal(size=(UNITS, 2)) + np.where(rng.uniform(size=(UNITS, 1)) < 0.4, 0.0, 4.0)
    cuts = np.linspace(0, 1, processes + 1) ** 1.5 * UNITS
    return everything[int(cuts[process]) : int(cuts[process + 1])].astype(np.float32)


def work(process: int, processes: int, port: int, folder: pathlib.Path, lose_after: int | None) -> None:
    """One process of the run."""
    import jax

    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if processes > 1:
        address = f"127.0.0.1:{port}"
        jax.distributed.initialize(
            address,
            processes,
            process,
            coordinator_bind_address=address,
            initialization_timeout=60,
            heartbeat_timeout_seconds=10,
        )
    import jax.random as jr

    import probml_jax as pml

    data = pml.sharding.place(share(process, processes))
    model = pml.mixtures.gaussian_mixture(jr.key(0), data.head(200), num_components=3)  # the same on every host
    if lose_after is not None and process == processes - 1:
        _lose_this_process(lose_after)
    fit = pml.fit(model, data, max_steps=60, rtol=-1.0, checkpoint=folder / "run.ckpt", every=5)
    if process == 0:
        pml.save(folder / "fit.pml", fit)
        print(
            f"{len(jax.devices())} devices in {processes} processes, {data.num_units} units: {fit.summary()}",
            flush=True,
        )


def _lose_this_process(after: int) -> None:
    """Have this process vanish, as machines do, when `after` steps have been written."""
    from probml_jax import _checkpoint

    write = _checkpoint.Checkpoint.write

    def and_vanish(self, progress):
        write(self, progress)
        if int(progress.evaluations) > after:
            signal.raise_signal(signal.SIGKILL)

    _checkpoint.Checkpoint.write = and_vanish


def launch(processes: int, folder: pathlib.Path, lose_after: int | None = None) -> list[tuple[int, str, str]]:
    """Start all processes and wait: code, output and errors of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--processes", str(processes), "--port", str(port), "--folder", str(folder)]
    command += [] if lose_after is None else ["--lose-after", str(lose_after)]
    started = [
        subprocess.Popen([*command, "--process", str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    ended = []
    for one in started:
        try:
            out, err = one.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            one.kill()
            out, err = one.communicate()
        ended.append((one.returncode, out, err))
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--process", type=int)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--lose-after", type=int)
    given = parser.parse_args()
    folder = given.folder or pathlib.Path(tempfile.mkdtemp())
    if given.process is not None:
        work(given.process, given.processes, given.port, folder, given.lose_after)
        return
    for code, out, err in launch(given.processes, folder, given.lose_after):
        print("".join(line for line in out.splitlines(keepends=True) if "[Gloo]" not in line), end="")
        if code:
            told = [line for line in err.splitlines() if line.startswith("RuntimeError") or "another task died" in line]
            print("\n".join(told) or f"lost, with exit code {code}", file=sys.stderr)


if __name__ == "__main__":
    main()

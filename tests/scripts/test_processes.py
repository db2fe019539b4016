#!/usr/bin/env python3
"""Jobs of several processes: what four processes of two devices compute is what one of eight does,
bit for bit, and whoever is lost is named by all the others.

usage: test_processes.py DRIVER mpi|tcp|network

mpi      under mpirun; skipped (77) where there is none
tcp      by flags, and by the variables of TPU slices
network  two network namespaces joined by a cable that is cut; skipped (77) where not permitted
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DRIVER = sys.argv[1]
TOKEN = {"TTT_TOKEN": "a secret of this test"}
LIMIT = 240  # seconds after which something hangs


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def start(command, **environment):
    return subprocess.Popen(command, env={**os.environ, **environment}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(processes):
    """Codes and what was said on stderr; nobody is left behind."""
    try:
        said = [p.communicate(timeout=LIMIT)[1] for p in processes]
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
                p.wait()
    return [p.returncode for p in processes], said


def failure(said):
    lines = [line for line in said.splitlines() if line.startswith("failed:")]
    return lines[0] if lines else "(nothing) " + said[-500:]


def flags(rank, processes, port, host="localhost"):
    return ["--rank", str(rank), "--processes", str(processes), "--coordinator", f"{host}:{port}"]


def free_port():
    return random.randrange(20000, 30000)


def by_flags(mode, count, *more):
    port = free_port()
    return [start([DRIVER, mode, *more, *flags(i, count, port)], **TOKEN) for i in range(count)]


def by_mpi(mode, count, *more, mpirun=()):
    return [start(["mpirun", "--oversubscribe", *mpirun, "-n", str(count), DRIVER, mode, *more],
                  OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")]


def read(path, count):
    return b"".join(open(f"{path}.{i}", "rb").read() for i in range(count))


def check_equal(launch, folder):
    for mode in "collectives", "sharded":
        one, many = os.path.join(folder, "one"), os.path.join(folder, "many")
        codes, said = finish([start([DRIVER, mode, "--out", one])])
        assert codes == [0], failure(said[0])
        for count in 4, 2:
            codes, said = finish(launch(mode, count, "--out", many, "--steps", "3"))
            assert not any(codes), [failure(s) for s in said]
            assert read(many, count) == read(one, 1), f"{mode} of {count} processes differs"
            print(f"{mode}: {count} processes equal one")


def check_agree(launch):
    """A stop request of one process reaches all, also where the time axis crosses processes."""
    for mesh in "time=2", "time=2,data=2", "data=4", "fsdp=2,time=4":
        codes, said = finish(launch("agree", 2, "--mesh", mesh))
        assert not any(codes), (mesh, [failure(s) for s in said])
        print(f"agree: two processes on {mesh}")


def check_platform(folder):
    """The platform is what the plugin says it is, whatever its file is called."""
    plugin = os.environ["TTT_PLUGIN_CPU"]
    renamed = os.path.join(folder, "libtpu.so")
    shutil.copyfile(plugin, renamed)
    codes, said = finish([start([DRIVER, "collectives", "--plugin", renamed])])
    assert codes == [0], failure(said[0])
    print("platform: a CPU plugin in libtpu.so has 8 devices")


def check_named(processes, lost, reason, but=None):
    codes, said = finish(processes)
    for i, (code, text) in enumerate(zip(codes, said)):
        if i != but:
            assert code == 3, (i, code, text)
            assert f"process {lost} (" in failure(text) and reason in failure(text), failure(text)
    print("lost:", failure(said[0 if but != 0 else 1]))


def mpi():
    if shutil.which("mpirun") is None:
        skip("there is no mpirun; install openmpi-bin")
    if not os.path.exists(os.environ.get("TTT_MPI_LIBRARY", "")):
        skip("libttt_mpi.so was not built; install libopenmpi-dev and configure again")
    codes, said = finish(by_mpi("meet", 4, "--steps", "5"))
    assert codes == [0], said
    with tempfile.TemporaryDirectory() as folder:
        check_equal(by_mpi, folder)
    # mpirun ends all as soon as one fails; what the others say before that is what counts.
    for what, reason, more in (("--stop", "nothing was heard of it", ()),
                               ("--die", "its connection was closed", ("--enable-recovery",))):
        _, said = finish(by_mpi("steps", 4, "--steps", "9", what, "2", "--silence", "3",
                                mpirun=more))
        told = [line for line in said[0].splitlines() if line.startswith("failed:")]
        named = [t for t in told if "process 2 (" in t and reason in t]
        # The stopped one goes on when mpirun ends it, and has lost the others.
        assert named and len(told) - len(named) <= (what == "--stop"), said
        print("lost:", named[0])
    _, said = finish(by_mpi("steps", 4, "--steps", "9", "--fail", "1",
                            mpirun=("--enable-recovery",)))
    told = [line for line in said[0].splitlines() if line.startswith("failed:")]
    assert len(told) == 4 and sum("process 1 (" in t for t in told) == 3, said
    print("left:", told[-1])


def tcp():
    codes, said = finish(by_flags("meet", 4, "--steps", "5"))
    assert not any(codes), said
    with tempfile.TemporaryDirectory() as folder:
        check_equal(by_flags, folder)
        check_platform(folder)
    check_agree(by_flags)
    for mode in "steps", "meet":
        for who in 2, 0:
            check_named(by_flags(mode, 4, "--steps", "9", "--die", str(who)), who, "was lost", who)
    for who in 3, 0:  # it fails by itself and leaves in good order
        check_named(by_flags("steps", 4, "--steps", "9", "--fail", str(who)), who, "", who)
    stopped = by_flags("steps", 4, "--steps", "9", "--stop", "1", "--silence", "3")
    check_stopped(stopped)
    port = str(free_port())
    slice_ = [start([DRIVER, "meet", "--steps", "5"], TPU_WORKER_ID=str(i), TTT_PORT=port,
                    TPU_WORKER_HOSTNAMES="localhost,127.0.0.1,localhost", **TOKEN)
              for i in range(3)]
    codes, said = finish(slice_)
    assert not any(codes), said
    print("TPU_WORKER_HOSTNAMES: 3 workers met")
    late = [start([DRIVER, "meet", "--timeout", "2"], TPU_WORKER_ID=str(i), TTT_PORT=port,
                  TPU_WORKER_HOSTNAMES="localhost,127.0.0.1,worker-c", **TOKEN) for i in range(2)]
    codes, said = finish(late)
    assert codes == [3, 3] and all("process 2 (worker-c) did not join within 2 s" in s
                                   for s in said), said
    print("missing:", failure(said[1]))


def check_stopped(processes):
    others = [p for i, p in enumerate(processes) if i != 1]
    try:
        codes, said = finish(others)
    finally:
        processes[1].send_signal(signal.SIGKILL)
        processes[1].communicate()
    assert codes == [3, 3, 3], (codes, said)
    assert all("process 1 (" in failure(text) for text in said), said
    print("stopped:", failure(said[0]))


def run(*command):
    return subprocess.run(command, capture_output=True, text=True).returncode == 0


def network():
    """Two hosts of their own names; the cable between them is cut while they compute."""
    names = [f"ttt{os.getpid()}{side}" for side in "ab"]
    if shutil.which("ip") is None or os.geteuid() != 0 or not run("ip", "netns", "add", names[0]):
        skip("network namespaces are not permitted here")
    processes = []
    try:
        ends = [f"v{os.getpid()}{side}" for side in "ab"]
        if not (run("ip", "netns", "add", names[1]) and
                run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])):
            skip("a cable between network namespaces is not permitted here")
        for i in range(2):
            inside = ("ip", "-n", names[i])
            assert run("ip", "link", "set", ends[i], "netns", names[i])
            assert run(*inside, "addr", "add", f"10.213.7.{i + 1}/24", "dev", ends[i])
            assert run(*inside, "link", "set", ends[i], "up") and run(*inside, "link", "set", "lo", "up")

        def job(mode, *more):
            port = free_port()
            return [start(["ip", "netns", "exec", names[i], "unshare", "--uts", "sh", "-c",
                           f'hostname host-{"ab"[i]}; exec "$@"', "sh", DRIVER, mode, *more,
                           *flags(i, 2, port, "10.213.7.1")], **TOKEN) for i in range(2)]

        with tempfile.TemporaryDirectory() as folder:
            one, many = os.path.join(folder, "one"), os.path.join(folder, "many")
            finish([start([DRIVER, "collectives", "--out", one])])
            codes, said = finish(job("collectives", "--out", many))
            assert codes == [0, 0], said
            assert read(many, 2) == read(one, 1)
            print("two hosts equal one process")
            check_named(job("steps", "--steps", "9", "--die", "1"), 1, "(host-b)", 1)
            seen = os.path.join(folder, "seen")
            processes = job("steps", "--steps", "1000000", "--silence", "3", "--out", seen)
            for _ in range(600):  # until both have computed something
                if all(os.path.exists(f"{seen}.{i}") for i in range(2)):
                    break
                time.sleep(0.1)
            time.sleep(1)
            assert run("ip", "-n", names[1], "link", "set", ends[1], "down")
            codes, said = finish(processes)
            assert codes == [3, 3], (codes, said)
            for text, other in zip(said, ("process 1 (host-b)", "process 0 (host-a)")):
                assert other in failure(text), failure(text)
                print("cut:", failure(text))
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
        for name in names:
            run("ip", "netns", "del", name)


if __name__ == "__main__":
    {"mpi": mpi, "tcp": tcp, "network": network}[sys.argv[2]]()

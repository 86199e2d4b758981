"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd of our own, in a folder of
their own, on ports of their own. Needs root and Debian's slurmctld, slurmd, slurm-client, munge."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel", "sinfo")

CONFIGURATION = """\
ClusterName=kvbench-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,requeue_setup_env_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
MinJobAge=3600
KillWait=20
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
MailProg=/bin/true
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8192 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=10 \
MaxTime=INFINITE State=UP
PartitionName=high Nodes={host} PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def missing_programs():
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    def __init__(self, folder, cpus=4):
        self.folder = Path(folder)
        self.processes = []
        host = socket.gethostname().split(".")[0]
        controller_port, node_port = free_ports(2)
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir()
        configuration = self.folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(
            host=host, folder=self.folder, cpus=cpus, controller_port=controller_port,
            node_port=node_port))
        self.environment = {**os.environ, "SLURM_CONF": str(configuration),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        try:
            self._start(host)
        except BaseException:
            self.stop()
            raise

    def _start(self, host):
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        self._spawn("munged", "--foreground", "--force", f"--key-file={munge}/key",
                    f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                    f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self._until("munged listens", (munge / "socket").exists)
        self._spawn("slurmctld", "-D", "-i")
        self._until("slurmctld answers", lambda: self.run("scontrol", "ping").returncode == 0)
        self._spawn("slurmd", "-D", "-N", host)
        self._until("the node is idle", lambda: "idle" in self.run("sinfo", "-h", "-o", "%t").stdout)

    def _spawn(self, *command):
        with (self.folder / f"{command[0]}.out").open("wb") as log:
            self.processes.append(subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True))

    def _until(self, what, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            ended = [process.args[0] for process in self.processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"not so: {what}; ended: {ended}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted(self.folder.glob("*.log")) +
                         sorted(self.folder.glob("*.out")))

    def run(self, *command, check=False, **options):
        done = subprocess.run([str(word) for word in command], env=self.environment, text=True,
                              capture_output=True, check=False, timeout=60, **options)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def jobs(self, job):
        """{"123_4": {"JobState": "RUNNING", ..}} of a job or job array; pending tasks one by one."""
        found = {}
        for block in self.run("scontrol", "show", "job", job).stdout.split("\n\n"):
            values = dict(word.split("=", 1) for word in block.split() if "=" in word)
            if "JobId" not in values:
                continue
            name = values["JobId"]
            if "ArrayTaskId" in values:
                name = f"{values['ArrayJobId']}_{values['ArrayTaskId']}"
            found[name] = values
        return found

    def stop(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

"""Child processes that end when the process that started them ends.

Run as a script, this file is the first moment of such a child: it drops root if it is told to, asks
the kernel for the signal, and becomes the command. A script and not a `preexec_fn`, because that is
unsafe as soon as the parent has threads. Outside Linux nobody notices the parent's death; whoever
starts next finds what was left (see `server`).
"""

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
LINUX_CAPABILITY_VERSION_3 = 0x20080522
# Either lets a process through folders that are closed to its user. The first one only reads, and
# is preferred; the second is the one that containers usually leave to root.
CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE = 2, 1


@dataclass(frozen=True)
class Account:
    """Who runs the command; `through_closed_folders` if its paths lie below ones closed to it."""

    uid: int
    gid: int
    through_closed_folders: bool = False


def start(
    argv: Sequence[str],
    *,
    ends_with: signal.Signals,
    output: IO[bytes],
    account: Account | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> subprocess.Popen[bytes]:
    """The command runs in its own session and gets `ends_with` when this process dies.

    `output` takes its stdout and stderr; `stdin` must fit into a pipe (64 KiB). Raises `OSError`.
    """
    uid, gid, through = (
        (account.uid, account.gid, account.through_closed_folders) if account else (-1, -1, False)
    )
    leashed = [sys.executable, "-I", "-S", __file__]
    leashed += [str(n) for n in (os.getpid(), int(ends_with), uid, gid, int(through))]
    born: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

    def keep() -> None:
        try:
            process = subprocess.Popen(
                [*leashed, *argv],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            born.put(error)
            return
        born.put(process)
        process.wait()

    # The kernel sends the signal when the *thread* that forked ends, so one thread forks and stays.
    threading.Thread(target=keep, name=f"leash-{Path(argv[0]).name}", daemon=True).start()
    process = born.get()
    if isinstance(process, OSError):
        raise process
    if process.stdin is not None:
        # A process that is gone already shows its exit code to the caller.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
    return process


def stop(process: subprocess.Popen[bytes], *steps: tuple[signal.Signals, float]) -> None:
    """The process has ended: each signal was given its seconds, and after the last came SIGKILL."""
    for signum, seconds in steps:
        process.send_signal(signum)
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.wait()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """The process and what it left in its group have been sent SIGKILL."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _become(account: Account) -> None:
    """This process runs as that user, and has kept at most the one capability it needs."""
    libc = ctypes.CDLL(None)
    keep = account.through_closed_folders and sys.platform == "linux"
    if keep:
        # Keeps the capabilities over the change of user, and lets access(2) respect them, by which
        # PostgreSQL looks at its own binary.
        libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(account.gid)
    os.setuid(account.uid)
    if keep:
        header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
        # A set with something that root itself lacks is refused; the empty one never is.
        for only in (1 << CAP_DAC_READ_SEARCH, 1 << CAP_DAC_OVERRIDE, 0):
            effective_permitted_inheritable = (ctypes.c_uint32 * 6)(only, only, only, 0, 0, 0)
            if libc.capset(header, effective_permitted_inheritable) == 0:
                # Only what is ambient too survives exec.
                libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, only.bit_length() - 1, 0, 0)
                return
        sys.exit("cannot give up the capabilities of root")


def _main() -> None:
    parent, signum, uid, gid, through = (int(n) for n in sys.argv[1:6])
    command = sys.argv[6:]
    if uid >= 0:
        _become(Account(uid, gid, bool(through)))
    if sys.platform == "linux":
        # After the change of user, which would clear it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    _main()

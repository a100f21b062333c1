"""Runs a command, and says how many seconds it took and how many MiB its largest process had in memory.

It is a process of its own because Linux counts what the parent held at the time of the fork as the child's:
started from a benchmark that holds 300 MiB, even /bin/true has a peak of 300 MiB. This one holds 9.
"""

import os
import sys
import time

began = time.monotonic()
# What the command says goes to stderr; stdout is for the figures.
to_stderr = [(os.POSIX_SPAWN_DUP2, 2, 1)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=to_stderr)
_, status, usage = os.wait4(pid, 0)
print(time.monotonic() - began, usage.ru_maxrss / 1024)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)

# SPDX-License-Identifier: MIT
"""Memory of processes: what no other one maps, and what their cgroup is charged.

bench/python.sh says by MEASURE where bench/plain_measure is. Ways that ran with MEASURED in front
are in a memory cgroup of their own, if one can be made (bench/meter.h). It counts each page once,
whether it is mapped or not.
"""

import os
import resource

MEASURED = os.environ.get("MEASURE", ""), "-o", os.devnull, "--"


def private(pid):
    """Bytes of a process that no other one maps."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        return sum(int(text.split()[1]) << 10 for text in lines if text.startswith("Private_"))


def cgroup_file(name1, name2):
    """The path of a file of the cgroup that plain_measure made for this process, by its names in
    both versions of cgroups; None without one."""
    with open("/proc/self/cgroup", encoding="ascii") as lines:
        for line in lines:
            _, kind, path = line.strip().split(":", 2)
            if "/cowshed-bench." in path and kind in ("memory", ""):
                return (f"/sys/fs/cgroup/memory{path}/{name1}" if kind else
                        f"/sys/fs/cgroup{path}/{name2}")
    return None


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def charged():
    """(bytes of the cgroup without the pages of files on disks, "cgroup"); without a cgroup those
    of the largest process so far, and "rss"."""
    path = cgroup_file("memory.usage_in_bytes", "memory.current")
    if not path:
        return largest(), "rss"
    facts = dict(line.split() for line in read(cgroup_file(*["memory.stat"] * 2)).splitlines())
    files = int(facts.get("cache", facts.get("file"))) - int(facts["shmem"])
    return int(read(path)) - files, "cgroup"


def largest():
    return max(resource.getrusage(who).ru_maxrss
               for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) << 10


def named(argument):
    """Processes that have this argument."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if argument.encode() in file.read().split(b"\0"):
                    found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found

# SPDX-License-Identifier: MIT
"""Memory of several processes, each page counted once, whether it is mapped or not.

Private pages and pages of files on disks: the proportional set sizes (Pss) of all processes, which
count a page once, however many map it. Shared memory lies in memfds and files of /dev/shm, whose
pages may be mapped by many or by nobody: what each such file holds (st_blocks), once, if one of
the processes has it open; of one that is mapped, but open nowhere, what is mapped of it.
"""

import os

SHARED = "/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"  # the latter two have no descriptor


def _private(pid):
    """Bytes of all but shared memory."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        facts = dict(line.split(":") for line in lines if line.startswith("Pss_"))
    return sum(int(facts[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_File"))


def _open_files(pid):
    """{(device, inode): bytes} of the shared memory that it has open."""
    found = {}
    for fd in os.scandir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(fd.path).startswith(SHARED):
                facts = os.stat(fd.path)
                found[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        except FileNotFoundError:
            pass  # it was closed meanwhile
    return found


def _mappings(lines):
    """(device and inode, the fields of smaps if it is that) of each mapping of shared memory."""
    key, facts = None, {}
    for line in lines:
        words = line.split(None, 5)
        if not words[0].endswith(":"):
            if key:
                yield key, facts
            key, facts = None, {}
            if len(words) > 5 and words[5].startswith(SHARED):
                major, minor = (int(part, 16) for part in words[3].split(":"))
                key = os.makedev(major, minor), int(words[4])
        elif key and words[0] in ("Pss:", "Anonymous:"):
            facts[words[0]] = int(words[1]) << 10
    if key:
        yield key, facts


def _mapped_alone(pid, known):
    """Bytes of shared memory that is mapped and not among the known."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as lines:
        if all(key in known for key, _ in _mappings(lines)):
            return 0
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        # Anonymous: what a private mapping copied, which is no more of the file.
        return sum(max(0, facts["Pss:"] - facts["Anonymous:"])
                   for key, facts in _mappings(lines) if key not in known)


def memory(pids):
    """Bytes of all pages of these processes; of one that has ended, none."""
    total, files = 0, {}
    for count in _private, _open_files, lambda pid: _mapped_alone(pid, files):
        for pid in pids:
            try:
                found = count(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if isinstance(found, dict):
                files.update(found)
            else:
                total += found
    return total + sum(files.values())


def descendants(pid):
    """A process, and all that it and those started, as long as these did not end."""
    children, found = {}, [pid]
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(name))
    for pid in found:  # which grows
        found += children.get(pid, [])
    return found


def named(argument):
    """Processes that were started with this argument."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if argument.encode() in file.read().split(b"\0"):
                    found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found

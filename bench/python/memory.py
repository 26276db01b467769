# SPDX-License-Identifier: MIT
"""Memory of several processes. Each page counts once, whether it is mapped or not.

Private pages and pages of files on disks are counted by the proportional set sizes (Pss) of all
processes, in which a page counts once, whatever the number of its mappings. Shared memory lies in
memfds and files of /dev/shm, whose pages may be mapped by several processes or by none. Each such
file that one of the processes has open counts once, with all it holds (st_blocks). Of a file that
is mapped, but open in none of them, the mapped pages count.
"""

import os

SHARED = "/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"  # the latter two have no descriptor


def private(pid):
    """Bytes of a process that no other one maps."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        return sum(int(text.split()[1]) << 10 for text in lines if text.startswith("Private_"))


def _private(pid):
    """Bytes of all but shared memory."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        facts = dict(line.split(":") for line in lines if line.startswith("Pss_"))
    return sum(int(facts[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_File"))


def _open_files(pid):
    """{(device, inode): bytes} of the shared memory that a process has open."""
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
    """(device and inode, fields) of each mapping of shared memory. `lines` are of smaps, or of
    maps, which has no fields."""
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
    """Bytes of shared memory that a process maps and that is not in `known`."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as lines:
        if all(key in known for key, _ in _mappings(lines)):
            return 0
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        # Anonymous pages are copies of a private mapping, which are not of the file.
        return sum(max(0, facts["Pss:"] - facts["Anonymous:"])
                   for key, facts in _mappings(lines) if key not in known)


def memory(pids):
    """Bytes of all pages of these processes. A process that has ended counts nothing."""
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

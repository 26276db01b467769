# SPDX-License-Identifier: MIT
"""The build backend, which pip calls to make wheels of this package (PEP 517, PEP 660).

A wheel is a zip file with the package's files and a folder that describes them. The Makefile makes
the files, in build/plain/python. This module writes the folder. A build needs make, a C compiler
and Python's headers, so `pip install ./python` works without a package index.

    checkout        The tree with this file in python/. pip never writes to it: the sources are
                    copied, and built in the copy. With --config-settings build-dir=FOLDER the copy
                    stays in that folder, and make has less to do the next time.
    sdist           The same tree without what only its developers need, with pyproject.toml at
                    the top. It is built like a checkout.
    wheel           One for all versions of CPython from 3.11 on (the stable ABI), with the
                    library, the shim and the command inside. Run paths are relative, so these
                    files are not looked for elsewhere. A CPython without the GIL has no stable
                    ABI, so it gets a wheel for its version alone.
    editable        A wheel with the path of the checkout's build/plain/python in it.
"""

import base64
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile

# Python has left a compiled copy of this file in the checkout. Remove it.
COMPILED = pathlib.Path(importlib.util.cache_from_source(__file__))
with contextlib.suppress(OSError):
    COMPILED.unlink()
    COMPILED.parent.rmdir()

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folders and files that a build needs, and that an sdist has.
FOLDERS = ("include", "memfd", "quiet", "core", "share", "tensor", "cuda", "preload", "cli",
           "python", "mk")
FILES = ("Makefile", "LICENSE", "README.md", "scripts/python.sh")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build", "dist", ".*")
PACKAGE = "build/plain/python"  # as in the Makefile
EXECUTABLE = 0o755


# ---- The functions that pip calls --------------------------------------------------------


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel in the folder; returns its name. SystemExit: the build failed."""
    with work_tree((config_settings or {}).get("build-dir")) as tree:
        copy_tree(tree)
        # Without debugging information; a build of the checkout has it.
        make(tree, "-g0 " + os.environ.get("CFLAGS", ""))
        package = tree / PACKAGE
        with Wheel(wheel_directory) as wheel:
            for path in sorted(package.rglob("*")):
                # The module of another Python, if the folder was kept.
                others = path.name.startswith("_cowshed.") and path.suffix == ".so" and \
                    path.name != "_cowshed" + suffix()
                if path.is_file() and "__pycache__" not in path.parts and not others:
                    wheel.add(path.relative_to(package).as_posix(), path.read_bytes(),
                              os.access(path, os.X_OK))
        return wheel.name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the checkout in place, and a wheel that refers to it; returns the wheel's name."""
    make(ROOT, os.environ.get("CFLAGS", ""))
    with Wheel(wheel_directory) as wheel:
        wheel.add("__editable__.cowshed.pth", f"{ROOT / PACKAGE}\n".encode())
    return wheel.name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the wheel's .dist-info folder; returns its name."""
    folder = pathlib.Path(metadata_directory) / dist_info()
    folder.mkdir()
    for name, data in about().items():
        (folder / name).write_bytes(data)
    return folder.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """Makes a source archive in the folder; returns its name. Compiles nothing."""
    top = f"cowshed-{version()}"
    with work_tree() as work:
        tree = work / top
        copy_tree(tree)
        settings = (tree / "python/pyproject.toml").read_text(encoding="utf-8")
        (tree / "pyproject.toml").write_text(
            settings.replace('backend-path = ["."]', 'backend-path = ["python"]'),
            encoding="utf-8")
        (tree / "PKG-INFO").write_bytes(metadata())
        with tarfile.open(os.path.join(sdist_directory, top + ".tar.gz"), "w:gz") as tar:
            tar.add(tree, top, filter=nobodys)
    return top + ".tar.gz"


# ---- Building ----------------------------------------------------------------------------


@contextlib.contextmanager
def work_tree(kept=None):
    """A folder for a copy of the tree: a temporary one, or `kept`.

    `kept` stays, and has the objects of the last build. Its sources are removed first.
    """
    if not kept:
        with tempfile.TemporaryDirectory(prefix="cowshed-") as work:
            yield pathlib.Path(work)
        return
    for name in FOLDERS:
        shutil.rmtree(os.path.join(kept, name), ignore_errors=True)
    yield pathlib.Path(kept)


def copy_tree(to):
    """Copies what a build needs."""
    to.mkdir(exist_ok=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, to / name, ignore=IGNORED)
    (to / "scripts").mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy2(ROOT / name, to / name)
    # The checkout may be read-only. Make the folders of the copy writable.
    for folder, _, _ in os.walk(to):
        os.chmod(folder, 0o755)


def make(tree, cflags):
    """Runs `make python`, without the variables of a make that has started pip."""
    if shutil.which("make") is None:
        raise SystemExit("cowshed: there is no `make` in PATH. Install GNU make and a C compiler "
                         "(Debian: apt-get install make gcc python3-dev)")
    environment = {name: value for name, value in os.environ.items() if name not in
                   ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEFILES", "MODE", "PYTHONPATH")}
    environment["CFLAGS"] = cflags
    command = ["make", "-C", str(tree), "python", "PYTHON=" + sys.executable,
               "EXT_SUFFIX=" + suffix()]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cowshed: '{shlex.join(command)}' ended with status {done.returncode}: "
                         "its messages above say why")


def nobodys(member):
    """Takes the owner out of a member of an archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


# ---- The description ---------------------------------------------------------------------


def version():
    """The version, as include/cowshed.h has it."""
    header = (ROOT / "include/cowshed.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"^#define COW_VERSION_{part} +(\d+)", header, re.M)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def project():
    """The table [project] of pyproject.toml."""
    settings = pathlib.Path(__file__).with_name("pyproject.toml")
    return tomllib.loads(settings.read_text(encoding="utf-8"))["project"]


def dist_info():
    return f"cowshed-{version()}.dist-info"


def has_gil():
    """Whether this Python is built with the GIL, and so has the stable ABI."""
    return not sysconfig.get_config_var("Py_GIL_DISABLED")


def suffix():
    """How the name of the extension module ends, on the platform that is built for."""
    if has_gil():
        return ".abi3.so"
    target = re.search("x86_64|aarch64", sysconfig.get_platform())
    own = sysconfig.get_config_var("EXT_SUFFIX")
    return re.sub("x86_64|aarch64", target[0], own) if target else own


def tag():
    """The wheel's compatibility tag: the stable ABI of CPython 3.11, or this version without
    the GIL; on this platform."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return (("cp311-abi3-" if has_gil() else f"{version}-{version}t-") +
            re.sub("[-.]", "_", sysconfig.get_platform()))


def metadata():
    about_us = project()
    lines = ["Metadata-Version: 2.1", "Name: " + about_us["name"], "Version: " + version(),
             "Summary: " + about_us["description"], "License: " + about_us["license"]["text"],
             "Keywords: " + ",".join(about_us["keywords"]),
             "Requires-Python: " + about_us["requires-python"],
             "Description-Content-Type: text/markdown"]
    lines += ["Classifier: " + text for text in about_us["classifiers"]]
    for extra, needs in about_us["optional-dependencies"].items():
        lines += ["Provides-Extra: " + extra]
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    text = (ROOT / about_us["readme"]).read_text(encoding="utf-8")
    return ("\n".join(lines) + "\n\n" + text).encode()


def about():
    scripts = "".join(f"{name} = {where}\n" for name, where in project()["scripts"].items())
    return {
        "METADATA": metadata(),
        "WHEEL": (f"Wheel-Version: 1.0\nGenerator: cowshed {version()}\n"
                  f"Root-Is-Purelib: false\nTag: {tag()}\n").encode(),
        "entry_points.txt": f"[console_scripts]\n{scripts}".encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


class Wheel:
    """A wheel that is being written: a zip file whose last file lists all files and their hashes.

    A context manager: it completes the file if the block raises nothing.
    """

    def __init__(self, directory):
        self.name = f"cowshed-{version()}-{tag()}.whl"
        self.zip = zipfile.ZipFile(os.path.join(directory, self.name), "w",
                                   zipfile.ZIP_DEFLATED)
        self.record = ""

    def add(self, name, data, executable=False):
        # A fixed date, so the same sources give the same wheel.
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | (EXECUTABLE if executable else 0o644)) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        self.record += f"{name},sha256={digest},{len(data)}\n"

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if failure is None:
            for name, data in about().items():
                self.add(f"{dist_info()}/{name}", data)
            name = f"{dist_info()}/RECORD"
            self.add(name, (self.record + name + ",,\n").encode())
        self.zip.close()
